// What managed memory costs on a real GPU: lone faults, many at once, scans, prefetch, accesses to the host's memory,
// faults of the processor, copies of what is read by both. Prints a line of JSON for each measurement: name, unit, median,
// least, most, and how many were taken. Never asks for more than 1 GiB. Build and run: experiments/managed/run.sh.
//
// A fault is timed where it happens: a thread reads the multiprocessor's clock around the access. The clock's frequency is
// taken from the GPU's nanosecond timer over a long wait.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;
constexpr size_t PAGE = 4 * KiB, BLOCK = 2 * MiB;
constexpr size_t POOL = 512 * MiB;
constexpr int GPU = 0;

void must(cudaError_t result, const char *what, int line) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "managed.cu:%d: %s: %s\n", line, what, cudaGetErrorString(result));
    std::exit(1);
}
#define MUST(call) must((call), #call, __LINE__)

const cudaMemLocation ON_HOST{cudaMemLocationTypeHost, 0};
const cudaMemLocation ON_GPU{cudaMemLocationTypeDevice, GPU};

double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

void tell(const std::string &name, const char *unit, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"least\": %.4g, \"most\": %.4g, \"runs\": %zu}\n",
                name.c_str(), unit, values[values.size() / 2], values.front(), values.back(), values.size());
    std::fflush(stdout);
}

__global__ void wait_and_read_clocks(long long cycles, long long *clock, unsigned long long *ns) {
    long long begun = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns[0]));
    clock[0] = begun;
    while (clock64() - begun < cycles) {}
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns[1]));
    clock[1] = clock64();
}

__global__ void nothing() {}

// One access in a warp of its own per place; how many cycles each took.
__global__ void touch(char *memory, const uint64_t *places, int count, bool write, long long *cycles) {
    int which = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (threadIdx.x % 32 != 0 || which >= count) return;
    volatile int *word = reinterpret_cast<volatile int *>(memory + places[which]);
    long long begun = clock64();
    if (write) {
        *word = which;
        __threadfence_system();
    } else {
        int value = *word;
        asm volatile("" ::"r"(value) : "memory");
        if (value == INT32_MIN) cycles[0] = 0;
    }
    cycles[which] = clock64() - begun;
}

// One thread, one access after the other: the next begins when the last has come.
__global__ void chase(const uint64_t *places, char *memory, int count, long long *cycles) {
    long long begun = clock64();
    uint64_t at = 0;
    for (int i = 0; i < count; i++) at = *reinterpret_cast<volatile uint64_t *>(memory + at);
    *cycles = clock64() - begun + (at == 1);
}

__global__ void scan(const uint4 *memory, size_t words, unsigned *sum) {
    unsigned mine = 0;
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
        uint4 word = memory[i];
        mine += word.x ^ word.y ^ word.z ^ word.w;
    }
    if (mine == 0x12345678) *sum = mine;
}

// Random lines of 128 bytes by whole warps.
__global__ void random_lines(const unsigned *memory, size_t lines, int each, unsigned *sum) {
    unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 2654435761u + 12345u, mine = 0;
    for (int i = 0; i < each; i++) {
        state = state * 1664525u + 1013904223u;
        mine += memory[(state >> 4) % lines * 32 + threadIdx.x % 32];
    }
    if (mine == 0x12345678) *sum = mine;
}

struct Bench {
    char *pool, *on_gpu, *pinned;
    uint64_t *places;
    long long *cycles;
    unsigned *sum;
    double cycles_per_us;

    Bench() {
        MUST(cudaSetDevice(GPU));
        MUST(cudaMallocManaged(reinterpret_cast<void **>(&pool), POOL));
        MUST(cudaMalloc(reinterpret_cast<void **>(&on_gpu), POOL));
        MUST(cudaMallocHost(reinterpret_cast<void **>(&pinned), POOL));
        MUST(cudaMallocHost(reinterpret_cast<void **>(&places), 65536 * sizeof *places));
        MUST(cudaMallocHost(reinterpret_cast<void **>(&cycles), 65536 * sizeof *cycles));
        MUST(cudaMalloc(reinterpret_cast<void **>(&sum), sizeof *sum));
        std::fill(pinned, pinned + POOL, 1);
        auto *ns = reinterpret_cast<unsigned long long *>(places);
        for (int i = 0; i < 2; i++) wait_and_read_clocks<<<1, 1>>>(100'000'000, cycles, ns), wait();
        cycles_per_us = double(cycles[1] - cycles[0]) / (double(ns[1] - ns[0]) / 1000);
        tell("clock of a multiprocessor", "MHz", {cycles_per_us});
    }

    void wait() { MUST(cudaGetLastError()), MUST(cudaDeviceSynchronize()); }

    // All of the pool in the host's memory, written there, without advice.
    void begin_on_host() {
        for (auto advice : {cudaMemAdviseUnsetReadMostly, cudaMemAdviseUnsetPreferredLocation, cudaMemAdviseUnsetAccessedBy})
            MUST(cudaMemAdvise(pool, POOL, advice, ON_GPU));
        MUST(cudaMemPrefetchAsync(pool, POOL, ON_HOST, 0, 0));
        wait();
        for (size_t at = 0; at < POOL; at += PAGE) pool[at] = 1;
    }
    void begin_on_gpu() {
        begin_on_host();
        MUST(cudaMemPrefetchAsync(pool, POOL, ON_GPU, 0, 0));
        wait();
    }

    // The places of `count` accesses, `apart` bytes from each other.
    void put(int count, size_t apart, size_t from = 0) {
        for (int i = 0; i < count; i++) places[i] = from + i * apart;
    }

    // The kernel's time from its launch to its end, and the time of each access.
    double touch_all(int count, bool write, std::vector<double> *each) {
        wait();
        double begun = now_us();
        touch<<<(count + 3) / 4, 128>>>(pool, places, count, write, cycles);
        wait();
        double took = now_us() - begun;
        if (each)
            for (int i = 0; i < count; i++) each->push_back(double(cycles[i]) / cycles_per_us);
        return took;
    }

    void launches() {
        std::vector<double> times;
        for (int i = 0; i < 200; i++) {
            double begun = now_us();
            nothing<<<1, 1>>>();
            wait();
            times.push_back(now_us() - begun);
        }
        tell("an empty kernel, launched and waited for", "us", times);
    }

    // A lone fault in a fresh block of 2 MiB: nothing else is under way, nothing of the block is there yet.
    void lone_faults() {
        for (bool write : {false, true}) {
            std::vector<double> first, again;
            begin_on_host();
            for (int i = 0; i < 200; i++) {
                put(1, 0, size_t(i) * BLOCK + 256 * KiB);
                touch_all(1, write, &first);
                touch_all(1, write, &again);
            }
            std::string what = write ? "write" : "read";
            tell("lone fault, host to GPU, " + what, "us", first);
            tell("the same page once more, " + what, "us", again);
        }
        std::vector<double> born;
        for (int i = 0; i < 20; i++) {
            char *fresh;
            MUST(cudaMallocManaged(reinterpret_cast<void **>(&fresh), BLOCK));
            std::swap(fresh, pool);
            put(1, 0);
            touch_all(1, true, &born);
            std::swap(fresh, pool);
            MUST(cudaFree(fresh));
        }
        tell("lone fault, a page that is nowhere yet", "us", born);
    }

    // How much longer for each fault more: in blocks of their own, and in one block.
    void many_faults() {
        for (size_t apart : {BLOCK, 64 * KiB, PAGE}) {
            for (int count : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
                std::vector<double> times;
                for (int run = 0; run < 5; run++) {
                    begin_on_host();
                    put(count, apart);
                    times.push_back(touch_all(count, false, nullptr));
                }
                tell(std::to_string(count) + " faults at once, " + std::to_string(apart / KiB) + " KiB apart", "us", times);
            }
        }
        std::vector<double> times;
        std::mt19937_64 random(1);
        for (int run = 0; run < 5; run++) {
            begin_on_host();
            for (int i = 0; i < 16384; i++) places[i] = random() % (POOL / PAGE) * PAGE;
            times.push_back(touch_all(16384, false, nullptr) / 16384);
        }
        tell("16384 random pages of 512 MiB at once, each", "us", times);
    }

    void remote_faults() {
        std::vector<double> first, again;
        begin_on_host();
        MUST(cudaMemAdvise(pool, POOL, cudaMemAdviseSetPreferredLocation, ON_HOST));
        for (int i = 0; i < 200; i++) {
            put(1, 0, size_t(i) * BLOCK);
            touch_all(1, false, &first);
            touch_all(1, false, &again);
        }
        tell("lone fault that maps the host's page where it is", "us", first);
        tell("the same page once more, where it is", "us", again);
    }

    // Both read, then the processor writes: the GPU's copy goes.
    void read_by_both() {
        begin_on_host();
        MUST(cudaMemAdvise(pool, POOL, cudaMemAdviseSetReadMostly, ON_GPU));
        std::vector<double> first, collapse;
        for (int i = 0; i < 200; i++) {
            char *page = pool + size_t(i) * BLOCK;
            put(1, 0, size_t(i) * BLOCK);
            touch_all(1, false, &first);
            double begun = now_us();
            *reinterpret_cast<volatile char *>(page) = 2;
            collapse.push_back(now_us() - begun);
        }
        tell("lone fault that copies a page for reading", "us", first);
        tell("the processor's write that ends a copy", "us", collapse);
    }

    void processor_faults() {
        begin_on_gpu();
        std::vector<double> lone;
        for (int i = 0; i < 200; i++) {
            double begun = now_us();
            *reinterpret_cast<volatile char *>(pool + size_t(i) * BLOCK) = 2;
            lone.push_back(now_us() - begun);
        }
        tell("lone fault, GPU to host, write", "us", lone);
        std::vector<double> rates;
        for (int run = 0; run < 5; run++) {
            begin_on_gpu();
            double begun = now_us();
            for (size_t at = 0; at < POOL; at += PAGE) *reinterpret_cast<volatile char *>(pool + at) = 2;
            rates.push_back(double(POOL) / (now_us() - begun) / 1000);
        }
        tell("scan by the processor of what is on the GPU", "GB/s", rates);
    }

    // One page there and back, by faults of both.
    void ping_pong() {
        begin_on_host();
        std::vector<double> there, back;
        put(1, 0, BLOCK);
        for (int i = 0; i < 200; i++) {
            touch_all(1, true, &there);
            double begun = now_us();
            *reinterpret_cast<volatile char *>(pool + BLOCK) = 2;
            back.push_back(now_us() - begun);
        }
        tell("one page to and fro: the GPU's fault", "us", there);
        tell("one page to and fro: the processor's fault", "us", back);
    }

    double rate(const std::function<void()> &move) {
        wait();
        double begun = now_us();
        move();
        wait();
        return double(POOL) / (now_us() - begun) / 1000;
    }

    void scans() {
        const auto words = POOL / sizeof(uint4);
        struct Way { const char *name; std::function<void()> before, move; };
        const Way ways[] = {
            {"scan by faults", [&] { begin_on_host(); }, [&] { scan<<<1056, 256>>>(reinterpret_cast<uint4 *>(pool), words, sum); }},
            {"prefetch, host to GPU", [&] { begin_on_host(); }, [&] { MUST(cudaMemPrefetchAsync(pool, POOL, ON_GPU, 0, 0)); }},
            {"prefetch, GPU to host", [&] { begin_on_gpu(); }, [&] { MUST(cudaMemPrefetchAsync(pool, POOL, ON_HOST, 0, 0)); }},
            {"copy of pinned memory, host to GPU", [] {}, [&] { MUST(cudaMemcpyAsync(on_gpu, pinned, POOL, cudaMemcpyDefault)); }},
            {"copy of pinned memory, GPU to host", [] {}, [&] { MUST(cudaMemcpyAsync(pinned, on_gpu, POOL, cudaMemcpyDefault)); }},
            {"scan of pinned memory where it is", [] {}, [&] { scan<<<1056, 256>>>(reinterpret_cast<uint4 *>(pinned), words, sum); }},
            {"scan of the GPU's memory", [] {}, [&] { scan<<<1056, 256>>>(reinterpret_cast<uint4 *>(on_gpu), words, sum); }},
        };
        for (const auto &way : ways) {
            std::vector<double> rates;
            for (int run = 0; run < 7; run++) {
                way.before();
                rates.push_back(rate(way.move));
            }
            tell(way.name, "GB/s", rates);
        }
    }

    // Accesses one after the other, and as many at once as the GPU has warps for.
    void accesses() {
        struct Where { const char *name; char *memory; };
        std::mt19937_64 random(2);
        for (auto where : {Where{"the GPU's memory", on_gpu}, Where{"the host's pinned memory", pinned}}) {
            std::vector<uint64_t> order(4096), links(POOL / sizeof(uint64_t), 0);
            for (size_t i = 0; i < order.size(); i++) order[i] = i * (POOL / order.size());
            std::shuffle(order.begin() + 1, order.end(), random);
            for (size_t i = 0; i < order.size(); i++) links[order[i] / 8] = order[(i + 1) % order.size()];
            MUST(cudaMemcpy(where.memory, links.data(), POOL, cudaMemcpyDefault));
            std::vector<double> alone, together;
            for (int run = 0; run < 7; run++) {
                chase<<<1, 1>>>(places, where.memory, 4096, cycles);
                wait();
                alone.push_back(double(*cycles) / cycles_per_us / 4096 * 1000);
                double begun = now_us();
                random_lines<<<1056, 256>>>(reinterpret_cast<unsigned *>(where.memory), POOL / 128, 64, sum);
                wait();
                together.push_back(1056.0 * 8 * 64 / (now_us() - begun));
            }
            tell(std::string("dependent reads of ") + where.name + ", each", "ns", alone);
            tell(std::string("random lines of 128 bytes of ") + where.name, "million/s", together);
        }
    }
};

} // namespace

int main() {
    cudaDeviceProp properties;
    MUST(cudaGetDeviceProperties(&properties, GPU));
    int concurrent = 0, pageable = 0, driver = 0;
    MUST(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, GPU));
    MUST(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, GPU));
    MUST(cudaDriverGetVersion(&driver));
    std::printf("{\"gpu\": \"%s\", \"concurrent_managed_access\": %d, \"pageable_memory_access\": %d, \"driver_api\": %d}\n",
                properties.name, concurrent, pageable, driver);
    if (!concurrent) {
        std::fprintf(stderr, "this GPU or its driver moves managed memory only with launches: there are no faults to measure\n");
        return 1;
    }
    Bench bench;
    bench.launches();
    bench.lone_faults();
    bench.many_faults();
    bench.remote_faults();
    bench.read_by_both();
    bench.processor_faults();
    bench.ping_pong();
    bench.scans();
    bench.accesses();
    return 0;
}
