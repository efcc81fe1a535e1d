/* Prints the size of each structure and the place and size of each of its fields, as the C compiler
 * lays them out. abi.sh writes structures.h, which lists them, from the header. */
#include <stddef.h>
#include <stdio.h>

#include <ellect.h>

#define STRUCT(type) printf("%s: %zu bytes\n", #type, sizeof(type))
#define FIELD(type, field) \
    printf("%s.%s: at %zu, %zu bytes\n", #type, #field, offsetof(type, field), \
           sizeof(((type *)0)->field))

int main(void) {
#include "structures.h"
    return 0;
}
