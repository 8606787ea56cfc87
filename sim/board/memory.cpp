// The memory behind the chip's ports, and the host's end of its register window.
//
// bsspec_board (wrapper.py) calls at every rising edge: board_reads and board_writes of every port
// with what the chip drives, board_cycle once, then board_read_out and board_write_out of every
// port for what the chip sees from then on. Python shares the control block and the bytes of the
// memory through two mapped files; it runs only while the simulation stands, so nothing is locked.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "control.h"  // made from control.py

namespace {

constexpr uint64_t PAGE = 4096, LINE = 64;
constexpr unsigned INCR = 1, CACHE = 2, PROT = 0;
constexpr unsigned LOOK_AT_THE_TIME = 64;  // cycles

struct Burst {
    uint64_t address = 0, ready = 0, order = 0;
    unsigned id = 0, beats = 0, done = 0, response = 0;
    std::vector<uint8_t> data, strobes;  // of a write that memory takes late
};

// What a master sends on a channel; it must not change before its transfer.
struct Held {
    bool valid = false;
    std::string payload;
};

struct Queue {
    unsigned id;
    std::deque<Burst> bursts;
};

struct Beat {
    uint8_t data[64];
    uint64_t strobe;
    bool last;
};

struct Port {
    // Seen by the chip in this cycle.
    bool arready = false, rvalid = false, awready = false, wready = false, bvalid = false;
    unsigned rid = 0, rresp = 0, bid = 0, bresp = 0;
    bool rlast = false;
    uint8_t rdata[64] = {};
    // Reads: bursts of each ID in order, and the ID that had the last beat.
    std::vector<Queue> reads;
    unsigned current = 0;
    // Writes: bursts that lack data, data that lack a burst, bursts to answer.
    std::deque<Burst> open;
    std::deque<Beat> early;
    std::vector<Queue> answers;
    Held ar, aw, w;

    void quiet() {
        arready = rvalid = awready = wready = bvalid = false;
        reads.clear();
        open.clear();
        early.clear();
        answers.clear();
        ar = aw = w = Held();
    }
};

Control* control = nullptr;
uint8_t* memory = nullptr;
Port ports[PORTS];
uint64_t arrived = 0;  // bursts so far
unsigned served = 0;  // the port that last had a share of the rate
double budget = 0;
uint64_t seeded = ~uint64_t(0), state = 1;
uint64_t started = 0;

// Register window: what the chip sees, and how far an access is.
struct {
    bool awvalid, wvalid, arvalid, bready, rready;
    uint64_t taken;  // the last access that was begun
} lite;
bool reset = true;
unsigned reset_left = 0;
bool wake = false;

uint32_t draw() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return uint32_t(state >> 32);
}

bool happens(uint64_t chance) { return chance && draw() < chance; }

void fail(const char* format, ...) {
    if (control->fault) return;
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(reinterpret_cast<char*>(control->text), sizeof control->text, format, arguments);
    va_end(arguments);
    if (used > 0 && size_t(used) < sizeof control->text)
        snprintf(reinterpret_cast<char*>(control->text) + used, sizeof control->text - used,
                 " in cycle %llu", (unsigned long long)control->cycles);
    control->fault = 1;
}

uint64_t wall() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1000000;
}

uint64_t answer_cycle(unsigned port) {
    uint64_t few = control->latency_min, many = control->latency_max;
    uint64_t chosen = many > few ? few + draw() % (many - few + 1) : few;
    return control->cycles + 1 + chosen + control->port_latency[port];
}

unsigned response(uint64_t address, unsigned kind) {
    for (unsigned i = 0; i < control->error_count; i++) {
        const ErrorRange& range = control->errors[i];
        if ((range.kinds & kind) && range.start <= address && address < range.end)
            return unsigned(range.code);
    }
    return 0;
}

Queue& queue_of(std::vector<Queue>& queues, unsigned id) {
    for (Queue& each : queues)
        if (each.id == id) return each;
    queues.push_back({id, {}});
    return queues.back();
}

size_t outstanding(const std::vector<Queue>& queues) {
    size_t count = 0;
    for (const Queue& each : queues) count += each.bursts.size();
    return count;
}

// Whether the master's payload is taken in this cycle.
bool transfer(unsigned port, const char* name, Held& held, bool valid, bool ready, const void* payload,
              size_t size) {
    if (!valid) {
        if (held.valid) fail("m%u_axi: %svalid fell before its transfer", port, name);
        return false;
    }
    if (held.valid && (held.payload.size() != size || memcmp(held.payload.data(), payload, size))) {
        fail("m%u_axi: the %s payload changed before its transfer", port, name);
        return false;
    }
    held.valid = !ready;
    if (!ready) held.payload.assign(static_cast<const char*>(payload), size);
    return ready;
}

struct Address {
    uint64_t address;
    uint32_t id, len, size, burst, cache, prot;
    uint32_t pad;
};

bool refused(unsigned port, const char* name, const Address& asked) {
    uint64_t bytes = control->port_bytes, count = asked.len + 1, total = count * bytes;
    if (asked.burst != INCR || asked.cache != CACHE || asked.prot != PROT || (1ull << asked.size) != bytes)
        fail("m%u_axi: %s of kind %u, size %u, cache %u, prot %u", port, name, asked.burst, asked.size,
             asked.cache, asked.prot);
    else if (asked.address % LINE || total % LINE)
        fail("m%u_axi: %s of %u beats from %#llx is not of whole lines", port, name, asked.len + 1,
             (unsigned long long)asked.address);
    else if (count > control->max_beats)
        fail("m%u_axi: %s of %u beats", port, name, asked.len + 1);
    else if (asked.address / PAGE != (asked.address + total - 1) / PAGE)
        fail("m%u_axi: %s of %u beats from %#llx crosses 4 KiB", port, name, asked.len + 1,
             (unsigned long long)asked.address);
    else if (asked.address >= control->memory_bytes || total > control->memory_bytes - asked.address)
        fail("m%u_axi: %s from %#llx is outside of memory", port, name, (unsigned long long)asked.address);
    return control->fault;
}

bool writable(uint64_t address) {
    if (!control->write_count) return true;
    for (unsigned i = 0; i < control->write_count; i++)
        if (control->writes[i].start <= address && address < control->writes[i].end) return true;
    return false;
}

void store(uint64_t address, const uint8_t* data, uint64_t strobe) {
    for (unsigned i = 0; i < control->port_bytes; i++)
        if (strobe >> i & 1) memory[address + i] = data[i];
}

void take_beat(unsigned p, const Beat& beat) {
    Port& port = ports[p];
    Burst& burst = port.open.front();
    uint64_t bytes = control->port_bytes, address = burst.address + burst.done * bytes;
    burst.done++;
    bool last = burst.done == burst.beats;
    if (beat.last != last) {
        fail("m%u_axi: wlast is %d in beat %u of %u", p, int(beat.last), burst.done, burst.beats);
        return;
    }
    for (unsigned i = 0; i < bytes && control->write_count; i++)
        if ((beat.strobe >> i & 1) && !writable(address + i)) {
            fail("m%u_axi: a write to %#llx, where none is allowed", p, (unsigned long long)(address + i));
            return;
        }
    unsigned code = response(address, 2);
    if (code > burst.response) burst.response = code;
    PortCounters& counters = control->counters[p];
    counters.write_beats++;
    counters.write_bytes += uint64_t(__builtin_popcountll(beat.strobe));
    if (control->late_writes) {
        burst.data.insert(burst.data.end(), beat.data, beat.data + bytes);
        for (unsigned i = 0; i < bytes; i++) burst.strobes.push_back(beat.strobe >> i & 1);
    } else {
        store(address, beat.data, beat.strobe);
    }
    if (last) {
        burst.ready = answer_cycle(p), burst.order = ++arrived;
        queue_of(port.answers, burst.id).bursts.push_back(burst);
        port.open.pop_front();
    }
}

// Chooses the ID whose answer goes next; false if none is due. The oldest burst is answered first,
// whole, unless the draw says that another one comes between.
bool choose(std::vector<Queue>& queues, unsigned& current, uint64_t swap) {
    uint64_t next = control->cycles + 1;
    unsigned due = 0;
    const Queue* best = nullptr;
    uint64_t oldest = 0;
    for (const Queue& each : queues)
        if (!each.bursts.empty() && each.bursts.front().ready <= next) {
            const Burst& burst = each.bursts.front();
            due++;
            bool begun = burst.done && burst.done < burst.beats && each.id == current;
            if (begun || !best || burst.order < oldest) {
                best = &each;
                oldest = begun ? 0 : burst.order;
            }
        }
    if (!due) return false;
    if (due == 1 || !happens(swap)) {
        current = best->id;
        return true;
    }
    unsigned chosen = draw() % due;
    for (const Queue& each : queues)
        if (!each.bursts.empty() && each.bursts.front().ready <= next && !chosen--) {
            current = each.id;
            break;
        }
    return true;
}

void next_read(unsigned p) {
    Port& port = ports[p];
    port.arready = !happens(control->stall[0]);
    if (port.rvalid) return;
    if (control->limited && budget <= 0) return;
    if (happens(control->stall[1]) || !choose(port.reads, port.current, control->swap)) return;
    Burst& burst = queue_of(port.reads, port.current).bursts.front();
    uint64_t address = burst.address + burst.done * control->port_bytes;
    port.rvalid = true;
    port.rid = port.current;
    port.rresp = response(address, 1);
    port.rlast = burst.done + 1 == burst.beats;
    memcpy(port.rdata, memory + address, control->port_bytes);
    budget -= double(control->port_bytes);
    served = p;
}

void next_write(unsigned p) {
    Port& port = ports[p];
    port.awready = !happens(control->stall[2]);
    port.wready = !(control->limited && budget <= 0) && !happens(control->stall[3]);
    if (port.bvalid) return;
    unsigned id = port.bid;
    if (happens(control->stall[4]) || !choose(port.answers, id, control->swap)) return;
    Burst& burst = queue_of(port.answers, id).bursts.front();
    for (size_t i = 0; i < burst.data.size(); i++)
        if (burst.strobes[i]) memory[burst.address + i] = burst.data[i];
    port.bvalid = true;
    port.bid = id;
    port.bresp = burst.response;
}

bool map_files(const char* folder) {
    std::string name = std::string(folder) + "/board.control";
    int handle = open(name.c_str(), O_RDWR);
    if (handle < 0) return false;
    struct stat found;
    if (fstat(handle, &found) || size_t(found.st_size) < sizeof(Control)) {
        close(handle);
        return false;
    }
    void* mapped = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    close(handle);
    Control* given = static_cast<Control*>(mapped);
    // The last thing that Python writes when it makes a board.
    if (mapped == MAP_FAILED || given->magic != CONTROL_MAGIC) return false;
    name = std::string(folder) + "/board.memory";
    handle = open(name.c_str(), O_RDWR);
    if (handle < 0) return false;
    mapped = mmap(nullptr, given->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, handle, 0);
    close(handle);
    if (mapped == MAP_FAILED) return false;
    memory = static_cast<uint8_t*>(mapped);
    control = given;
    started = wall();
    return true;
}

void to_reset() {
    for (unsigned p = 0; p < PORTS; p++) ports[p].quiet();
    lite.awvalid = lite.wvalid = lite.arvalid = lite.bready = lite.rready = false;
    budget = 0;
}

// The board is gone: another test may make one.
void forget_files() {
    munmap(memory, control->file_bytes);
    munmap(control, sizeof(Control));
    control = nullptr;
    memory = nullptr;
    reset = true;
    reset_left = 0;
    seeded = ~uint64_t(0);
    served = 0;
    lite.taken = 0;
    to_reset();
}

}  // namespace

extern "C" {

void board_reads(int p, unsigned arvalid, unsigned arid, uint64_t araddr, unsigned arlen, unsigned arsize,
                 unsigned arburst, unsigned arcache, unsigned arprot, unsigned rready) {
    if (!control || reset || control->fault) return;
    Port& port = ports[p];
    PortCounters& counters = control->counters[p];
    if (port.rvalid && rready) {
        Queue& queue = queue_of(port.reads, port.rid);
        counters.read_beats++;
        counters.read_bytes += control->port_bytes;
        if (++queue.bursts.front().done == queue.bursts.front().beats) queue.bursts.pop_front();
        port.rvalid = false;
    }
    Address asked = {araddr, arid, arlen, arsize, arburst, arcache, arprot, 0};
    if (!transfer(unsigned(p), "ar", port.ar, arvalid, port.arready, &asked, sizeof asked)) return;
    if (refused(unsigned(p), "ar", asked)) return;
    Burst burst;
    burst.address = araddr;
    burst.id = arid;
    burst.beats = arlen + 1;
    burst.ready = answer_cycle(unsigned(p)), burst.order = ++arrived;
    queue_of(port.reads, arid).bursts.push_back(burst);
    counters.read_bursts++;
    uint64_t most = outstanding(port.reads);
    if (most > counters.most_reads) counters.most_reads = most;
}

void board_writes(int p, unsigned awvalid, unsigned awid, uint64_t awaddr, unsigned awlen, unsigned awsize,
                  unsigned awburst, unsigned awcache, unsigned awprot, unsigned wvalid, const uint32_t* wdata,
                  uint64_t wstrb, unsigned wlast, unsigned bready) {
    if (!control || reset || control->fault) return;
    Port& port = ports[p];
    PortCounters& counters = control->counters[p];
    if (port.bvalid && bready) {
        queue_of(port.answers, port.bid).bursts.pop_front();
        port.bvalid = false;
    }
    Address asked = {awaddr, awid, awlen, awsize, awburst, awcache, awprot, 0};
    if (transfer(unsigned(p), "aw", port.aw, awvalid, port.awready, &asked, sizeof asked)) {
        if (refused(unsigned(p), "aw", asked)) return;
        Burst burst;
        burst.address = awaddr;
        burst.id = awid;
        burst.beats = awlen + 1;
        port.open.push_back(burst);
        counters.write_bursts++;
    }
    if (wvalid || port.w.valid) {
        Beat beat;
        memset(&beat, 0, sizeof beat);
        memcpy(beat.data, wdata, control->port_bytes);
        beat.strobe = wstrb;
        beat.last = wlast;
        if (transfer(unsigned(p), "w", port.w, wvalid, port.wready, &beat, sizeof beat)) {
            port.early.push_back(beat);
            budget -= double(control->port_bytes);
        }
    }
    // Data may come before their address; they follow the order of the addresses.
    while (!control->fault && !port.early.empty() && !port.open.empty()) {
        take_beat(unsigned(p), port.early.front());
        port.early.pop_front();
    }
    uint64_t most = port.open.size() + outstanding(port.answers);
    if (most > counters.most_writes) counters.most_writes = most;
}

void board_cycle(unsigned awready, unsigned wready, unsigned bvalid, unsigned bresp, unsigned arready,
                 unsigned rvalid, unsigned rdata, unsigned rresp, unsigned interrupt, unsigned* rst,
                 unsigned* woken, unsigned* awvalid, unsigned* wvalid, unsigned* arvalid, unsigned* bready,
                 unsigned* rready, unsigned* address, unsigned* data, unsigned* strobe) {
    if (control && control->magic != CONTROL_MAGIC) forget_files();
    if (!control) {
        const char* folder = getenv("BSSPEC_BOARD");
        if (folder) map_files(folder);
    }
    if (!control) {
        *rst = 1;
        *woken = wake;
        *awvalid = *wvalid = *arvalid = *bready = *rready = *address = *data = *strobe = 0;
        return;
    }
    Control& c = *control;
    if (c.seed != seeded) {
        seeded = c.seed;
        state = (seeded + 1) * 0x9E3779B97F4A7C15ull | 1;
        for (int i = 0; i < 8; i++) draw();
    }
    uint64_t happened = 0;
    if (!reset) {
        c.interrupt = interrupt;
        if (lite.awvalid && awready) lite.awvalid = false;
        if (lite.wvalid && wready) lite.wvalid = false;
        if (lite.arvalid && arready) lite.arvalid = false;
        if ((lite.bready && bvalid) || (lite.rready && rvalid)) {
            c.access_response = lite.rready ? rresp : bresp;
            c.access_result = rdata;
            c.access_done = lite.taken;
            lite.bready = lite.rready = false;
        }
        if (!c.fault && c.access_asked != c.access_done && lite.taken != c.access_asked) {
            lite.taken = c.access_asked;
            lite.awvalid = lite.wvalid = lite.bready = c.access_write;
            lite.arvalid = lite.rready = !c.access_write;
        }
        if (c.access_asked == c.access_done) happened |= WAKE_ACCESS;
        if (interrupt) happened |= WAKE_INTERRUPT;
        if (!c.fault) {
            // Nothing is saved up: the rate holds over any stretch, but for a beat of each port.
            if (c.limited) {
                budget += c.rate;
                if (budget > c.rate) budget = c.rate;
            }
            for (unsigned i = 0, first = served + 1; i < c.ports; i++) {
                unsigned p = (first + i) % unsigned(c.ports);
                next_read(p);
                next_write(p);
            }
        }
    } else if (!c.reset_asked && !reset_left) {
        reset = false;
    }
    if (c.reset_asked) {
        reset = true;
        reset_left = unsigned(c.reset_asked) - 1;
        c.reset_asked = 0;
        c.interrupt = 0;
        c.access_done = lite.taken = c.access_asked;
        to_reset();
    } else if (reset_left) {
        reset_left--;
    }
    if (!reset) happened |= WAKE_RUNNING;
    if (c.cycles >= c.wake_cycle) happened |= WAKE_CYCLE;
    if (c.wake_mask & WAKE_TIME && c.cycles % LOOK_AT_THE_TIME == 0 && wall() - started >= c.wake_time)
        happened |= WAKE_TIME;
    if (c.fault) happened |= WAKE_FAULT;
    c.milliseconds = c.cycles % LOOK_AT_THE_TIME ? c.milliseconds : wall() - started;
    if (happened & c.wake_mask) {
        c.woken = happened & c.wake_mask;
        c.wake_mask = 0;
        wake = !wake;
    }
    c.cycles++;
    *rst = reset;
    *woken = wake;
    *awvalid = lite.awvalid;
    *wvalid = lite.wvalid;
    *arvalid = lite.arvalid;
    *bready = lite.bready;
    *rready = lite.rready;
    *address = unsigned(c.access_address);
    *data = unsigned(c.access_data);
    *strobe = unsigned(c.access_strobe);
}

void board_read_out(int p, unsigned* arready, unsigned* rvalid, unsigned* rid, uint32_t* rdata, unsigned* rresp,
                    unsigned* rlast) {
    const Port& port = ports[p];
    *arready = port.arready;
    *rvalid = port.rvalid;
    *rid = port.rid;
    *rresp = port.rresp;
    *rlast = port.rlast;
    if (control) memcpy(rdata, port.rdata, control->port_bytes);
}

void board_write_out(int p, unsigned* awready, unsigned* wready, unsigned* bvalid, unsigned* bid, unsigned* bresp) {
    const Port& port = ports[p];
    *awready = port.awready;
    *wready = port.wready;
    *bvalid = port.bvalid;
    *bid = port.bid;
    *bresp = port.bresp;
}
}
