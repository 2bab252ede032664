/* A driver that takes the loader a while: its functions must not be called before they are relocated. */
#define FUNCTIONS 200000

static int succeeds(void) { return 0; }
int (*functions[FUNCTIONS])(void) = {[0 ... FUNCTIONS - 1] = succeeds};

int cuInit(unsigned flags) { return (void)flags, functions[FUNCTIONS - 1](); }
int cuDriverGetVersion(int *version) { return *version = 12090, 0; }
