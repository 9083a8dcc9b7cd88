"""What a first evening needs: the demo, a broker, a registry and Connect for development, the doctor, benchmarks."""
