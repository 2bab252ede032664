/* A library that is linked to the driver and cannot be opened: a function that it calls is nowhere. */
extern int cuInit(unsigned), is_nowhere(void);

int initializes(void) { return cuInit(0) + is_nowhere(); }
