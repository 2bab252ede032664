/* Runs a program under a filter of system calls, as containers, services and sandboxes do.
 *
 *   filtered ACTION NUMBER... -- PROGRAM ARGUMENT...
 *
 * ACTION and NUMBER: see filter.h. Each launcher before another adds a filter. */
#include <stdio.h>

#include "filter.h"

int main(int count, char **arguments) {
  int end = 2;
  while (end < count && strcmp(arguments[end], "--") != 0) end++;
  if (end + 1 >= count) return 2;
  if (install_filter(arguments[1], arguments + 2, end - 2, 0)) {
    fprintf(stderr, "filtered: no filter %s\n", arguments[1]);
    return 2;
  }
  execvp(arguments[end + 1], arguments + end + 1);
  perror(arguments[end + 1]);
  return 2;
}
