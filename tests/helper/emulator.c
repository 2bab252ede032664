/* A library in the driver's place, for tests of the helper: it has no device. */
int cuDriverGetVersion(int *version) { return *version = 12000, 0; }
int cuInit(unsigned flags) { return flags ? 1 : 100; }
