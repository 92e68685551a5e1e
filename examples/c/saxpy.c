/* y = a x + y on two cards, in C: a kernel by its name on one, a function of this program on the other. The program
 * reads both halves through the pointer that it has; nobody copies anything.
 *
 *     cc -std=c11 saxpy.c $(pkg-config --cflags --libs farside) -o saxpy && ./saxpy
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <farside.h>

enum { VALUES = 1 << 20, HALF = VALUES / 2 };

/* Ends the program if a call failed. */
static void must(farside_status status)
{
    if (status == FARSIDE_STATUS_OK)
        return;
    fprintf(stderr, "%s: %s\n", farside_status_text(status), farside_last_error());
    exit(1);
}

static farside_argument value(float a)
{
    union { float value; uint32_t bits; } word = { a };
    farside_argument argument = { FARSIDE_VALUE, sizeof a, word.bits, FARSIDE_FLOAT };
    return argument;
}

static farside_argument lend(uint32_t kind, const float *values, size_t count)
{
    farside_argument argument = { kind, sizeof *values, (uintptr_t)values, count * sizeof *values };
    return argument;
}

/* Gets a piece of x and of y at a time, and a as a word of eight bytes. */
static int32_t saxpy(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    float a = *(const float *)user;
    const float *x = pieces[0];
    float *y = pieces[1];
    (void)first;
    for (uint64_t i = 0; i < count; i++)
        y[i] += a * x[i];
    return 0;
}

int main(void)
{
    farside_space *space;
    must(farside_open(NULL, &space)); /* two cards in the program */
    void *memory;
    must(farside_malloc(space, VALUES * sizeof(float), "x", &memory));
    float *x = memory;
    must(farside_malloc(space, VALUES * sizeof(float), "y", &memory));
    float *y = memory;
    for (size_t i = 0; i < VALUES; i++) {
        x[i] = (float)i;
        y[i] = 1;
    }

    farside_argument low[] = { value(2), lend(FARSIDE_READ, x, HALF), lend(FARSIDE_WRITE, y, HALF) };
    farside_argument high[] = {
        value(2), lend(FARSIDE_READ, x + HALF, HALF), lend(FARSIDE_WRITE, y + HALF, HALF),
    };
    farside_launch on_0 = FARSIDE_LAUNCH_INIT, on_1 = FARSIDE_LAUNCH_INIT;
    on_1.card = 1;
    on_1.body = saxpy;
    farside_job *named, *function;
    must(farside_launch_kernel(space, "farside.saxpy", low, 3, &on_0, &named));
    must(farside_launch_kernel(space, "saxpy of this program", high, 3, &on_1, &function));
    must(farside_job_wait(named, -1, NULL));
    must(farside_job_wait(function, -1, NULL));
    must(farside_job_free(named));
    must(farside_job_free(function));

    farside_placement parts[8];
    size_t count;
    must(farside_where(space, y, VALUES * sizeof *y, parts, 8, &count));
    for (size_t i = 0; i < count && i < 8; i++)
        printf("%6" PRIu64 " KiB of y: %s %d, because of %s\n", parts[i].bytes / 1024,
               parts[i].state, parts[i].memory, parts[i].reason);

    size_t wrong = 0;
    for (size_t i = 0; i < VALUES; i++)
        wrong += y[i] != 2 * (float)i + 1;
    printf("%d values, %zu wrong\n", VALUES, wrong);
    must(farside_release(space, x));
    must(farside_release(space, y));
    must(farside_close(space));
    return wrong != 0;
}
