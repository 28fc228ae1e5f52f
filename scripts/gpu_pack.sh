#!/usr/bin/env bash
# Makes the folder .gpu: what scripts/gpu.py needs on a machine without network and with Python 3.12, 16 MB in all. These are TOFU, a
# tokenizer, and the packages that such a machine's image lacks (CONTRIBUTING.md says how it travels there).
set -euo pipefail
cd "$(dirname "$0")/.."
shared="${OFMU_SHARED:-../shared}"
model=models/tofu-tiny-full
packages=(bitsandbytes==0.50.2 datasets==5.2.0 jsonargparse==4.53.0 nltk==3.10.4 rapidfuzz==3.14.6 multiprocess==0.70.19
    dill==0.4.1 typeshed-client==2.15.0 docstring-parser==0.18.0)
platforms=(--platform manylinux2014_x86_64)
for n in 28 27 24 17; do platforms+=(--platform "manylinux_2_${n}_x86_64"); done

rm -rf .gpu
mkdir -p .gpu/wheels .gpu/site ".gpu/$model" .gpu/data
cp -r "$shared/data/tofu" .gpu/data/
cp "$shared/$model"/{config,generation_config,tokenizer,tokenizer_config}.json "$shared/$model/chat_template.jinja" ".gpu/$model/"
python -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
    -d .gpu/wheels "${packages[@]}"
for wheel in .gpu/wheels/*.whl; do python -m zipfile -e "$wheel" .gpu/site; done
cp -r "$(python -c 'import rouge_score; print(rouge_score.__path__[0])')" .gpu/site/  # the registry has no wheel of it
find .gpu/site -name 'libbitsandbytes_*' ! -name '*cpu.so' ! -name '*cuda130.so' -delete
find .gpu/site -name __pycache__ -prune -exec rm -r {} +
tar czf .gpu/site.tgz -C .gpu/site .
rm -r .gpu/wheels .gpu/site
chmod -R u+w .gpu
du -sm .gpu
