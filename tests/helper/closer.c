/* A library that closes others. */
#include <dlfcn.h>

int closes(void *library) { return dlclose(library); }
