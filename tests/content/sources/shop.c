#include <stdio.h>
#include "shop.h"

#define SQUARE(x) ((x) * (x))

struct order {
    int number;
    struct order *next;
};

typedef struct {
    int price;
} line_t;

enum state { OPEN, CLOSED };

int total(const struct order *first);
static char *label(int number);

int
total(const struct order *first)
{
    int sum = 0;
    for (; first != NULL; first = first->next)
        sum += first->number;
    return sum;
}

static char *label(int number)
{
    static char text[16];
    snprintf(text, sizeof text, "%d", number);
    return text;
}

int main(void) { return total(NULL) < 0; }
