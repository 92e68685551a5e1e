// Farside for C and C++: one virtual address space over host memory and any number of cards.
//
//     #include <farside.h>
//
//     farside_space *space;
//     void *memory;
//     if (farside_open(NULL, &space) || farside_malloc(space, 4096, "numbers", &memory))
//         return fprintf(stderr, "%s\n", farside_last_error()), 1;
//
// Calls return a status, FARSIDE_STATUS_OK if all is well; farside_last_error() says what was wrong and what to do.
// All of them can be called by any thread at any time. Spaces and jobs are numbers that are looked up: one that was
// closed or freed is an error and nothing worse. A pointer of farside_malloc is valid in the program and on every card, and is
// used as any other; a page that is elsewhere comes when it is touched.
//
// Kernels are called by their names (farside-kernel.h says how to write some), or are functions of the program.
// In a child made by fork the space is not there; open another one. docs/c.md has more.
//
// Written by crates/c from its sources; not to be changed by hand.

#ifndef FARSIDE_H
#define FARSIDE_H

#include <stddef.h>
#include <stdint.h>
#include "farside-kernel.h"

// Version of this interface: farside_abi() of the library that is used. It changes where a program would have to.
#define FARSIDE_ABI 1

#define FARSIDE_HOST (-1)    // the host's memory, where a card's number is asked for
#define FARSIDE_NOWHERE (-2) // pages that are in no memory: never written, or lost

#define FARSIDE_READ_MOSTLY 1u  // read by many: pages are copied to who reads them
#define FARSIDE_WHOLE_BLOCKS 2u // used in whole: a fault brings a block of pages
#define FARSIDE_PREFERRED 3u    // best in the memory that is named
#define FARSIDE_ACCESSED_BY 4u  // mapped by the agent that is named wherever it is

// How a call ended. farside_last_error() says more of what is not FARSIDE_STATUS_OK or
// FARSIDE_STATUS_RUNNING. Later versions may have more statuses.
typedef enum {
    // Done.
    FARSIDE_STATUS_OK = 0,
    // The kernel has not ended within the time that was given.
    FARSIDE_STATUS_RUNNING = 1,
    // An argument cannot be: a null pointer, a setting, a size, a text that is not UTF-8.
    FARSIDE_STATUS_BAD_ARGUMENT = 2,
    // No such space or job, or it was closed or freed before.
    FARSIDE_STATUS_BAD_HANDLE = 3,
    // An address that is in no memory of the space, or in memory that was freed.
    FARSIDE_STATUS_BAD_MEMORY = 4,
    // Memory is held by a kernel that has not ended.
    FARSIDE_STATUS_LENT = 5,
    // The space has no more addresses, or a card no more memory.
    FARSIDE_STATUS_NO_MEMORY = 6,
    // The space has no card of that number, or no longer.
    FARSIDE_STATUS_NO_CARD = 7,
    // There is no kernel of that name, or a library of kernels or of a scheme cannot be used.
    FARSIDE_STATUS_NO_KERNEL = 8,
    // A kernel was refused, failed, was cancelled, or took too long.
    FARSIDE_STATUS_KERNEL_FAILED = 9,
    // The space was opened by the process that this one was forked from.
    FARSIDE_STATUS_WRONG_PROCESS = 10,
    // Something that the machine, a card or the driver could not do.
    FARSIDE_STATUS_FAILED = 11,
    // A mistake in Farside itself.
    FARSIDE_STATUS_INTERNAL = 12,
} farside_status;

// A kernel that was launched. Opaque.
typedef struct farside_job farside_job;

// A space. Opaque.
typedef struct farside_space farside_space;

// How a kernel is launched. Begin it with FARSIDE_LAUNCH_INIT; 0 and null mean the default.
typedef struct {
    // sizeof(farside_launch)
    uint32_t size;
    // The card.
    uint32_t card;
    // A stream of farside_stream: launches of one run in the order in which they were made. 0: of none.
    uint64_t stream;
    // Nanoseconds that it may take, waiting included; 0: as many as it wants.
    uint64_t time_limit_ns;
    // Jobs of the same space that must have ended before it begins.
    const farside_job *const *after;
    // How many.
    size_t after_count;
    // A function that is in no table, for a card in the program: it gets the memory of the arguments in pieces, and in
    // `user` the values among them as words of eight bytes, in their order.
    farside_body body;
} farside_launch;

// Pages one behind the other that are in the same state.
typedef struct {
    // Of the first byte.
    uint64_t address;
    // A multiple of 4096.
    uint64_t bytes;
    // The memory that they are in: a card's number, FARSIDE_HOST, or FARSIDE_NOWHERE for pages that were never written or
    // are lost.
    int32_t memory;
    // Memories with a copy: bit 0 the host's, bit 1 card 0's, and so on.
    uint32_t copies;
    // "fresh", "host", "card", "replicated", "moving" or "lost".
    char state[24];
    // Why they came there last, in a word; empty if that is not known.
    char reason[24];
} farside_placement;

// One of a card's own memories.
typedef struct {
    // "ddr", "hbm", "bram", "host", or "memory".
    const char *kind;
    // A multiple of 4096.
    uint64_t bytes;
} farside_window;

// How a space is opened. Begin it with FARSIDE_OPTIONS_INIT; 0 and null mean the default.
typedef struct {
    // sizeof(farside_options)
    uint32_t size;
    // Cards in the program, 1 to 16; 2 by default.
    uint32_t cards;
    // Bytes of memory on each of them, a multiple of 4096; 64 MiB by default.
    uint64_t card_memory;
    // Bytes of each for its own memory (farside_malloc_on), beside that; none by default.
    uint64_t card_window;
    // Bytes of addresses, a multiple of 2 MiB: what can be allocated at the same time.
    uint64_t address_space;
    // Kernels of a card at a time; 1 by default.
    uint32_t processing_elements;
    // Not 0: allocations of 2 MiB and more are in large pages.
    uint32_t large_pages;
    // Placement scheme: a name of `farside schemes`, or a library (farside-scheme.h): a path that ends with .so, and behind a
    // colon its parameters.
    const char *placement;
    // Where the cards are, if not in the program, as in the variable FARSIDE_CARDS.
    const char *cards_at;
    // Libraries of kernels (farside-kernel.h): paths, and a null pointer behind the last.
    const char *const *kernel_libraries;
    // In place of card_window: several memories of each card's own, which farside_malloc_on chooses from.
    const farside_window *windows;
    // How many; at most 15.
    size_t window_count;
} farside_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A new stream.
farside_status farside_stream(const farside_space *space, uint64_t *stream);

// Launches a kernel and does not wait for it. `how` may be null: on card 0. Free the job with farside_job_free. What
// memory the arguments name is lent until the job has ended: the program does not write what is lent as FARSIDE_READ, leaves
// alone what is lent as FARSIDE_WRITE, and uses what is lent as FARSIDE_SHARED by atomic operations. That no other
// kernel contradicts is checked.
farside_status farside_launch_kernel(const farside_space *space,
                                     const char *kernel,
                                     const farside_argument *arguments,
                                     uint32_t count,
                                     const farside_launch *how,
                                     farside_job **job);

// Launches a kernel and waits for its end. `result` may be null; it gets what the kernel returned.
farside_status farside_call(const farside_space *space,
                            const char *kernel,
                            const farside_argument *arguments,
                            uint32_t count,
                            const farside_launch *how,
                            uint64_t *result);

// Waits for a job's end, at most so many nanoseconds (none if negative is as long as it takes), and gives what the kernel
// returned; FARSIDE_STATUS_RUNNING if it has not ended. It can be called again, and by several threads. `result` may be
// null.
farside_status farside_job_wait(const farside_job *job,
                                int64_t limit_ns,
                                uint64_t *result);

// Tells a kernel to stop. It ends as failed, unless it has ended before.
farside_status farside_job_cancel(const farside_job *job);

// Gives a job back. Its kernel goes on, and what it is lent stays lent. Nothing happens for a null pointer.
farside_status farside_job_free(farside_job *job);

// Allocates shared memory, zero, aligned to a page: valid at the same address in the program and on every card. `name` is for
// reports and errors, and may be null.
farside_status farside_malloc(const farside_space *space,
                              size_t bytes,
                              const char *name,
                              void **memory);

// Shares memory that the program has already (malloc, an array, anonymous mmap), at its own addresses, until farside_release
// of its first byte, which brings all of it home and frees nothing. Do not free, move or unmap it before. It needs Linux 6.8.
// Pages at its ends that hold other data as well stay where they are, and kernels reach their bytes there; cards in other
// processes need whole pages. `name` is for reports and errors, and may be null.
farside_status farside_adopt(const farside_space *space,
                             void *memory,
                             size_t bytes,
                             const char *name);

// Makes a file shared memory: its bytes lie at `memory` on the host and on all cards, come when they are touched, and what is
// changed of them is written by farside_sync_file, by farside_release, and when their memory is needed for others. The host keeps
// `at_a_time` bytes of it, of 4 MiB at least; 0 stands for 256 MiB. It is locked (flock) until it is released. Linux 6.8.
farside_status farside_map_file(const farside_space *space,
                                const char *path,
                                uint64_t at_a_time,
                                void **memory,
                                uint64_t *bytes);

// Writes what was changed of a file, by kernels that have ended and by the program, and waits until it is on the disk. What cannot be
// written stays in memory, and can be synced again, but for what was lost with a card. `memory` is what farside_map_file gave.
farside_status farside_sync_file(const farside_space *space,
                                 void *memory);

// Allocates memory of a card's own, zero: its pages stay on that card. `number` is which of its memories: 0 where there is one
// alone, else farside_memory_number tells.
farside_status farside_malloc_on(const farside_space *space,
                                 uint32_t card,
                                 uint32_t number,
                                 size_t bytes,
                                 void **memory);

// Takes memory over that a kernel of a card has made in the card's own memory, and handed over with farside_hand_over: its
// `address`, and as many bytes as it has. The program may not be able to reach it at its address, if its pages
// are scattered and the process has no more mappings; farside_copy_out always can.
farside_status farside_take_over(const farside_space *space,
                                 uint32_t card,
                                 uint64_t address,
                                 size_t bytes,
                                 void **memory);

// Bytes of one of a card's own memories that nobody has.
farside_status farside_own_memory_free(const farside_space *space,
                                       uint32_t card,
                                       uint32_t number,
                                       uint64_t *bytes);

// The number of one of a card's own memories, by its name such as "hbm0", or by its kind if the card has one of it alone.
farside_status farside_memory_number(const farside_space *space,
                                     uint32_t card,
                                     const char *name,
                                     uint32_t *number);

// Frees memory of any of these kinds; what was adopted is the program's again, and what was changed of a file is written.
// It is refused while a kernel holds some of it. If it fails, it can be tried again, unless bytes were lost with a card.
// Nothing happens for a null pointer.
farside_status farside_release(const farside_space *space,
                               void *memory);

// Copies memory of the space, of a card's own too, to where the program wants it.
farside_status farside_copy_out(const farside_space *space,
                                const void *memory,
                                size_t bytes,
                                void *to);

// Moves memory: all of it, or nothing. `pages` may be null; it gets how many were moved.
farside_status farside_migrate(const farside_space *space,
                               const void *memory,
                               size_t bytes,
                               int32_t to,
                               uint64_t *pages);

// Brings memory as far as there is room. `pages` may be null; it gets how many were moved.
farside_status farside_prefetch(const farside_space *space,
                                const void *memory,
                                size_t bytes,
                                int32_t to,
                                uint64_t *pages);

// Moves memory and keeps it there, until farside_unpin has been called as often.
farside_status farside_pin(const farside_space *space,
                           const void *memory,
                           size_t bytes,
                           int32_t at);

// Undoes one farside_pin.
farside_status farside_unpin(const farside_space *space, const void *memory, size_t bytes);

// Whether kernels may write memory: not if `on` is not 0.
farside_status farside_set_read_only(const farside_space *space,
                                     const void *memory,
                                     size_t bytes,
                                     int32_t on);

// Tells how memory will be used: one of FARSIDE_READ_MOSTLY, FARSIDE_WHOLE_BLOCKS, FARSIDE_PREFERRED and
// FARSIDE_ACCESSED_BY. It holds if `on` is not 0, and no longer if it is. `who` is a card's number or
// FARSIDE_HOST: the memory that is preferred, or the agent that accesses.
farside_status farside_advise(const farside_space *space,
                              const void *memory,
                              size_t bytes,
                              uint32_t advice,
                              int32_t on,
                              int32_t who);

// Where memory is: the first `capacity` parts of it, and in `count` how many there are.
farside_status farside_where(const farside_space *space,
                             const void *memory,
                             size_t bytes,
                             farside_placement *parts,
                             size_t capacity,
                             size_t *count);

// Why the page at an address is where it is, in words: as much as `size` bytes hold, with a zero at the end. `length` may be null;
// it gets the length of the whole text.
farside_status farside_why(const farside_space *space,
                           const void *address,
                           char *why,
                           size_t size,
                           size_t *length);

// Version of this interface, FARSIDE_ABI when the library was made.
uint32_t farside_abi(void);

// Version of Farside, such as "0.1.0".
const char *farside_version(void);

// Opens a space. Options may be null: two cards in the program. The variable FARSIDE_CARDS has the last word on
// where the cards are.
farside_status farside_open(const farside_options *options,
                            farside_space **space);

// Waits for all kernels of a space, frees its memory and closes it. Its jobs can be asked for their results
// afterwards. Nothing happens for a null pointer.
farside_status farside_close(farside_space *space);

// Number of cards; they are 0 to one less.
farside_status farside_cards(const farside_space *space, uint32_t *cards);

// Number of kernels that can be called by name.
farside_status farside_kernel_count(const farside_space *space, size_t *count);

// Name of a kernel, from 0 to one less than there are: as much of it as `size` bytes hold, with a zero at the end. `length` may be
// null; it gets the length of the whole name.
farside_status farside_kernel_name(const farside_space *space,
                                   size_t index,
                                   char *name,
                                   size_t size,
                                   size_t *length);

// What happened in a space so far, as text for people, or as JSON where `json` is not 0: as much of it as `size` bytes hold, with
// a zero at the end. `length` may be null; it gets the length of the whole text.
farside_status farside_report(const farside_space *space,
                              int32_t json,
                              char *report,
                              size_t size,
                              size_t *length);

// What was wrong with the last call of this thread that failed, and what to do about it. The text is valid until the
// thread's next call; it is empty if none has failed.
const char *farside_last_error(void);

// What a status means, in general. Never null.
const char *farside_status_text(int32_t status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARSIDE_H */

#define FARSIDE_OPTIONS_INIT { sizeof(farside_options), 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0 }
#define FARSIDE_LAUNCH_INIT { sizeof(farside_launch), 0, 0, 0, NULL, 0, NULL }
