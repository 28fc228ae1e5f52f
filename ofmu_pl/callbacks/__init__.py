"""What happens around training: measuring, exporting."""
