/* An object that is linked to the helper and to the driver, which a program opens and closes. */
#include "count.h"

/* In the current context. */
unsigned used(void) {
  load();
  return counted_in(NULL, 1);
}
