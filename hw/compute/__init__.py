"""The compute core: aligner, LUT generator, BS-RAC lanes, MPU and the broadcast array."""
