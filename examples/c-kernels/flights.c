/* Kernels of examples/flights.py: which flights were late, and how late per carrier and airport.
 *
 * cc -shared -fPIC -O2 -I include -o flights.so examples/c-kernels/flights.c
 */
#include <string.h>

#include "farside-kernel.h"

/* Rows that are worked on at a time. */
#define BLOCK 4096
/* Groups of a table, at most. */
#define GROUPS 1024
/* Of a group: flights, those that were late, minutes that these were late. */
#define COLUMNS 3

/* Copies a piece in or out; user is the block's beginning. */
static int32_t copy_in(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    memcpy((int32_t *)user + first, pieces[0], count * sizeof(int32_t));
    return FARSIDE_OK;
}

static int32_t copy_pointers_in(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    memcpy((uint64_t *)user + first, pieces[0], count * sizeof(uint64_t));
    return FARSIDE_OK;
}

static int32_t copy_pointers_out(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    memcpy(pieces[0], (uint64_t *)user + first, count * sizeof(uint64_t));
    return FARSIDE_OK;
}

/* A list of pointers in shared memory that grows at its end. */
struct list {
    farside_range whole;
    uint64_t length;
};

static int32_t append(farside_context *ctx, struct list *list, uint64_t *pointers, uint64_t count)
{
    farside_range part = farside_part(list->whole, list->length, count);
    list->length += count;
    return count ? farside_for_each(ctx, &part, 1, copy_pointers_out, pointers) : FARSIDE_OK;
}

/* flights.split: of the delays, i32 to read, pointers to those that are late go to the first list,
 * to the others to the second: u64 to write, each as long as the delays. Gives how many are late. */
static int32_t split(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                     uint64_t *result)
{
    static _Thread_local int32_t delays[BLOCK];
    static _Thread_local uint64_t late[BLOCK], others[BLOCK];
    if (count != 3 || arguments[0].kind != FARSIDE_READ || arguments[0].element != 4
        || arguments[1].kind != FARSIDE_WRITE || arguments[1].element != 8
        || arguments[2].kind != FARSIDE_WRITE || arguments[2].element != 8
        || arguments[1].bytes != 2 * arguments[0].bytes
        || arguments[2].bytes != 2 * arguments[0].bytes)
        return farside_fail(ctx, "takes (read i32 delays, write u64 late, write u64 others), equally long");
    struct list b = { farside_write(&arguments[1]), 0 }, c = { farside_write(&arguments[2]), 0 };
    uint64_t rows = arguments[0].bytes / 4;
    for (uint64_t first = 0; first < rows; first += BLOCK) {
        uint64_t n = rows - first < BLOCK ? rows - first : BLOCK, n_late = 0, n_others = 0;
        farside_range part = farside_part(farside_read(&arguments[0]), first, n);
        int32_t error = farside_for_each(ctx, &part, 1, copy_in, delays);
        if (error)
            return error;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t pointer = part.address + i * 4;
            if (delays[i] > 0)
                late[n_late++] = pointer;
            else
                others[n_others++] = pointer;
        }
        if ((error = append(ctx, &b, late, n_late)) || (error = append(ctx, &c, others, n_others)))
            return error;
    }
    *result = b.length;
    return FARSIDE_OK;
}

static int32_t add_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    int64_t *groups = pieces[0];
    for (uint64_t i = 0; i < count; i++)
        groups[i] += ((int64_t *)user)[first + i];
    return FARSIDE_OK;
}

/* flights.group: follows pointers, u64 to read, to flights: delays, i32, and carriers and airports,
 * i8, to read; adds to the groups, i64 to write, carrier by carrier, so many airports each. */
static int32_t group(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                     uint64_t *result)
{
    static _Thread_local uint64_t pointers[BLOCK], others[BLOCK];
    static _Thread_local int32_t delays[BLOCK];
    static _Thread_local int8_t carriers[BLOCK], airports[BLOCK];
    static _Thread_local int64_t sums[GROUPS * COLUMNS];
    if (count != 6 || arguments[0].element != 8 || arguments[1].element != 4
        || arguments[2].element != 1 || arguments[3].element != 1 || arguments[4].element != 8
        || arguments[4].kind != FARSIDE_WRITE || arguments[5].kind != FARSIDE_VALUE
        || arguments[4].bytes > sizeof sums)
        return farside_fail(ctx, "takes (read u64 pointers, read i32 delays, read i8 carriers, read i8 airports, "
                                 "write i64 groups, airports)");
    uint64_t rows = arguments[0].bytes / 8, of_airports = arguments[5].word;
    uint64_t groups = arguments[4].bytes / 8 / COLUMNS;
    memset(sums, 0, sizeof sums);
    for (uint64_t first = 0; first < rows; first += BLOCK) {
        uint64_t n = rows - first < BLOCK ? rows - first : BLOCK;
        farside_range part = farside_part(farside_read(&arguments[0]), first, n);
        int32_t error = farside_for_each(ctx, &part, 1, copy_pointers_in, pointers);
        if (error || (error = farside_gather(ctx, pointers, 4, n, delays)))
            return error;
        for (uint64_t i = 0; i < n; i++)
            others[i] = arguments[2].word + (pointers[i] - arguments[1].word) / 4;
        if ((error = farside_gather(ctx, others, 1, n, carriers)))
            return error;
        for (uint64_t i = 0; i < n; i++)
            others[i] = arguments[3].word + (pointers[i] - arguments[1].word) / 4;
        if ((error = farside_gather(ctx, others, 1, n, airports)))
            return error;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t of = (uint64_t)carriers[i] * of_airports + (uint64_t)airports[i];
            if (carriers[i] < 0 || airports[i] < 0 || of >= groups)
                return farside_fail(ctx, "a flight of a carrier or an airport that has no group");
            sums[of * COLUMNS] += 1;
            sums[of * COLUMNS + 1] += delays[i] > 0;
            sums[of * COLUMNS + 2] += delays[i] > 0 ? delays[i] : 0;
        }
    }
    *result = rows;
    farside_range all = farside_write(&arguments[4]);
    return farside_for_each(ctx, &all, 1, add_piece, sums);
}

static const farside_kernel kernels[] = { { "flights.split", split }, { "flights.group", group } };

FARSIDE_EXPORT_KERNELS(kernels)
