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

/* Copies a piece of doubles, or of pointers, which are as long; user is the block's beginning. */
static int32_t copy_in(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    memcpy((char *)user + 8 * first, pieces[0], 8 * count);
    return FARSIDE_OK;
}

/* flights.split: makes two vectors in the card's own memory, of pointers to the delays, f64 to read,
 * of those that are late and of the others. Where they are it writes as two farside_made, four u64
 * to write. Gives how many are late. */
static int32_t split(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                     uint64_t *result)
{
    static _Thread_local double delays[BLOCK];
    static _Thread_local uint64_t late[BLOCK], others[BLOCK];
    if (count != 2 || arguments[0].kind != FARSIDE_READ || arguments[0].element != 8
        || arguments[1].kind != FARSIDE_WRITE || arguments[1].bytes != 2 * sizeof(farside_made))
        return farside_fail(ctx, "takes (read f64 delays, write u64 made[4])");
    farside_growable b = FARSIDE_GROWABLE(uint64_t), c = FARSIDE_GROWABLE(uint64_t);
    uint64_t rows = arguments[0].bytes / 8;
    for (uint64_t first = 0; first < rows; first += BLOCK) {
        uint64_t n = rows - first < BLOCK ? rows - first : BLOCK, n_late = 0, n_others = 0;
        farside_range part = farside_part(farside_read(&arguments[0]), first, n);
        int32_t error = farside_for_each(ctx, &part, 1, copy_in, delays);
        if (error)
            return error;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t pointer = part.address + i * 8;
            if (delays[i] > 0)
                late[n_late++] = pointer;
            else
                others[n_others++] = pointer;
        }
        if ((error = farside_extend(ctx, &b, late, n_late))
            || (error = farside_extend(ctx, &c, others, n_others)))
            return error;
    }
    *result = b.length;
    farside_made made[2];
    int32_t error = farside_finish(ctx, &b, &made[0]);
    if (error || (error = farside_finish(ctx, &c, &made[1])))
        return error;
    return farside_tell(ctx, arguments[1].word, made, sizeof made);
}

static int32_t add_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    int64_t *groups = pieces[0];
    for (uint64_t i = 0; i < count; i++)
        groups[i] += ((int64_t *)user)[first + i];
    return FARSIDE_OK;
}

/* flights.group: follows pointers, u64 to read, to flights: delays, f64, and carriers and
 * airports, i8, to read; adds to the groups, i64 to write, carrier by carrier, so many airports each. */
static int32_t group(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                     uint64_t *result)
{
    static _Thread_local uint64_t pointers[BLOCK], others[BLOCK];
    static _Thread_local double delays[BLOCK];
    static _Thread_local int8_t carriers[BLOCK], airports[BLOCK];
    static _Thread_local int64_t sums[GROUPS * COLUMNS];
    if (count != 6 || arguments[0].element != 8 || arguments[1].element != 8
        || arguments[2].element != 1 || arguments[3].element != 1 || arguments[4].element != 8
        || arguments[4].kind != FARSIDE_WRITE || !farside_is_value(&arguments[5], FARSIDE_INTEGER, 8)
        || arguments[4].bytes > sizeof sums)
        return farside_fail(ctx, "takes (read u64 pointers, read f64 delays, read i8 carriers, read i8 airports, "
                                 "write i64 groups, airports)");
    uint64_t rows = arguments[0].bytes / 8, of_airports = arguments[5].word;
    uint64_t groups = arguments[4].bytes / 8 / COLUMNS;
    memset(sums, 0, sizeof sums);
    for (uint64_t first = 0; first < rows; first += BLOCK) {
        uint64_t n = rows - first < BLOCK ? rows - first : BLOCK;
        farside_range part = farside_part(farside_read(&arguments[0]), first, n);
        int32_t error = farside_for_each(ctx, &part, 1, copy_in, pointers);
        if (error || (error = farside_gather(ctx, pointers, 8, n, delays)))
            return error;
        for (uint64_t i = 0; i < n; i++)
            others[i] = arguments[2].word + (pointers[i] - arguments[1].word) / 8;
        if ((error = farside_gather(ctx, others, 1, n, carriers)))
            return error;
        for (uint64_t i = 0; i < n; i++)
            others[i] = arguments[3].word + (pointers[i] - arguments[1].word) / 8;
        if ((error = farside_gather(ctx, others, 1, n, airports)))
            return error;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t of = (uint64_t)carriers[i] * of_airports + (uint64_t)airports[i];
            if (carriers[i] < 0 || airports[i] < 0 || of >= groups)
                return farside_fail(ctx, "a flight of a carrier or an airport that has no group");
            sums[of * COLUMNS] += 1;
            sums[of * COLUMNS + 1] += delays[i] > 0;
            sums[of * COLUMNS + 2] += delays[i] > 0 ? (int64_t)delays[i] : 0;
        }
    }
    *result = rows;
    farside_range all = farside_write(&arguments[4]);
    return farside_for_each(ctx, &all, 1, add_piece, sums);
}

static const farside_kernel kernels[] = { { "flights.split", split }, { "flights.group", group } };

FARSIDE_EXPORT_KERNELS(kernels)
