/*
 * The experiments sprite-small and throughput as plain C: what our own loop is compared with.
 *
 * It speaks the protocol of crates/bench/src/worker.rs: a request as JSON on standard input, the
 * answer as JSON on standard output. Each call is the one that our loop makes, on the same path
 * and with the same flags, as the same user, on the same processor, after the same walk through
 * memory. Only directories, and only one thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, BATCHES_MAX = 1 << 16, REQUEST_MAX = 1 << 16, FAN_OUT = 16 };
static const uint64_t BATCH = 1000000;
/* See crates/bench/src/turns.rs. */
static const uint64_t TURN = 4000000;

static char request[REQUEST_MAX];
static uint64_t random_state;
static uint64_t *swept;
static uint64_t sweep_words;

/* The phase that is being measured. */
static struct {
    int takes_turns, is_cold;
    uint64_t turn, begin, units, stride, until_look, count, phase_begin;
    double steal, waited;
    struct { uint64_t units, nanoseconds; } batches[BATCHES_MAX];
} watch;
/* What is told in the end, if nothing fails, and how many phases are in it. */
static FILE *answer;
static unsigned told;

static void fail(const char *format, ...) {
    char words[512];
    va_list rest;
    va_start(rest, format);
    vsnprintf(words, sizeof words, format, rest);
    va_end(rest);
    /* Paths are of the request, which has none with quotes or backslashes. */
    printf("{\"Failed\":\"%s\"}\n", words);
    exit(0);
}

static void must(int good, const char *call, const char *object) {
    if (!good) {
        fail("%s %s: %s", call, object, strerror(errno));
    }
}

/* What stands behind `key` in the request; a quoted key can't stand inside of a string. */
static const char *value(const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(request, quoted);
    return at ? at + strlen(quoted) : NULL;
}

static uint64_t number(const char *key) {
    const char *at = value(key);
    return at ? strtoull(at, NULL, 10) : 0;
}

/* The string behind `key`. */
static void text(const char *key, char *into, size_t size) {
    const char *at = value(key);
    const char *end = at && *at == '"' ? strchr(at + 1, '"') : NULL;
    size_t length = end ? (size_t)(end - at - 1) : 0;
    if (!end || length >= size || memchr(at, '\\', length + 1)) {
        printf("{\"Failed\":\"no plain string %s in the request\"}\n", key);
        exit(0);
    }
    memcpy(into, at + 1, length);
    into[length] = 0;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* SplitMix64. */
static uint64_t draw(void) {
    uint64_t mixed = random_state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
}

static void shuffle(uint64_t *items, uint64_t count) {
    for (uint64_t last = count; last-- > 1;) {
        uint64_t other = draw() % (last + 1), kept = items[last];
        items[last] = items[other];
        items[other] = kept;
    }
}

/* Word `index` of the first line of a file of /proc, as a number; 0 if it is not told. */
static double word(const char *path, int index) {
    char line[1024] = "", *rest = line, *one = NULL;
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, sizeof line, file)) {
        line[0] = 0;
    }
    if (file) {
        fclose(file);
    }
    while (index-- >= 0 && (one = strtok_r(rest, " \n", &rest))) {
    }
    return one ? strtod(one, NULL) : 0;
}

/* Waits for the turn. */
static void wait_turn(void) {
    (void)getchar();
    watch.turn = now();
}

/* Lets others work, and waits for the next turn. */
static void pass(char what) {
    if (watch.takes_turns) {
        putchar(what);
        fflush(stdout);
        wait_turn();
    }
}

/* Begins a phase; the clock is looked at each `stride` calls. */
static void begin(uint64_t stride) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < sweep_words; at += 8) {
        sum += swept[at];
    }
    __asm__ volatile("" : : "r"(sum) : "memory");
    watch.steal = word("/proc/stat", 8);
    watch.waited = word("/proc/self/schedstat", 1);
    watch.units = watch.count = 0;
    watch.stride = watch.until_look = stride;
    watch.begin = watch.phase_begin = now();
}

static void close_batch(uint64_t time) {
    watch.batches[watch.count].units = watch.units;
    watch.batches[watch.count].nanoseconds = time - watch.begin;
    /* The first batch of a turn does not count. */
    watch.count += !watch.is_cold && watch.count + 1 < BATCHES_MAX;
    watch.is_cold = 0;
    watch.begin = time;
    watch.units = 0;
    if (watch.takes_turns && time - watch.turn >= TURN) {
        pass('.');
        watch.is_cold = 1;
        watch.begin = now();
    }
}

static inline void did(uint64_t units) {
    watch.units += units;
    if (--watch.until_look == 0) {
        watch.until_look = watch.stride;
        uint64_t time = now();
        if (time - watch.begin >= BATCH) {
            close_batch(time);
        }
    }
}

/* Ends the phase. What is left over belongs to the last batch. */
static void end(const char *phase) {
    uint64_t time = now(), count = watch.count;
    if (count > 0 && watch.is_cold) {
        /* Nothing is left over. */
    } else if (count > 0) {
        watch.batches[count - 1].units += watch.units;
        watch.batches[count - 1].nanoseconds += time - watch.begin;
    } else {
        close_batch(time);
        count = watch.count;
    }
    double taken = (double)(now() - watch.phase_begin);
    double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    /* A single tick, of which a second has a hundred, may be of before. */
    double steal = word("/proc/stat", 8) - watch.steal - 1;
    steal = steal > 0 ? steal * 1e7 / processors / taken : 0;
    double waited = (word("/proc/self/schedstat", 1) - watch.waited) / taken;
    fprintf(answer, "%s{\"phase\":\"%s\",\"batches\":[", told++ ? "," : "", phase);
    for (uint64_t at = 0; at < count; at++) {
        fprintf(answer, "%s{\"units\":%llu,\"nanoseconds\":%llu}", at ? "," : "",
                (unsigned long long)watch.batches[at].units,
                (unsigned long long)watch.batches[at].nanoseconds);
    }
    fprintf(answer, "],\"disturbance\":{\"steal\":%f,\"waited\":%f,", steal, waited);
    fprintf(answer, "\"reclaim\":0,\"pressure\":0.0}}");
    watch.is_cold = 0;
    pass('|');
}

/* Looks at each line of what was read. */
static inline void consume(const unsigned char *bytes, uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < count; at += 64) {
        sum += bytes[at];
    }
    __asm__ volatile("" : : "r"(sum) : "memory");
}

enum { PATH_BYTES = 40 };

static char (*make_names(uint32_t files, uint32_t directories))[PATH_BYTES] {
    char(*names)[PATH_BYTES] = calloc(files, PATH_BYTES);
    must(names != NULL, "calloc", "names");
    for (uint32_t file = 0; file < files; file++) {
        uint32_t directory = (uint32_t)((uint64_t)file * directories / files);
        snprintf(names[file], PATH_BYTES, "d%03u/e%05u/f%07u", directory / FAN_OUT, directory,
                 file);
    }
    return names;
}

static void make_directories(uint32_t directories) {
    char path[PATH_BYTES];
    for (uint32_t at = 0; at < (directories + FAN_OUT - 1) / FAN_OUT; at++) {
        snprintf(path, sizeof path, "d%03u", at);
        must(mkdir(path, 0755) == 0, "mkdir", path);
    }
    for (uint32_t at = 0; at < directories; at++) {
        snprintf(path, sizeof path, "d%03u/e%05u", at / FAN_OUT, at);
        must(mkdir(path, 0755) == 0, "mkdir", path);
    }
}

static void sprite_small(uint64_t part, unsigned char *content) {
    static const char *phases[] = {"create", "read", "stat", "unlink"};
    uint64_t wanted = number("files"), bytes = number("bytes"), below = number("directories");
    if (part > 3 || wanted == 0 || wanted > UINT32_MAX || below == 0) {
        fail("sprite-small has no such part, no files, or too many");
    }
    uint32_t files = (uint32_t)wanted, directories = below < files ? (uint32_t)below : files;
    char(*names)[PATH_BYTES] = make_names(files, directories);
    if (part == 0) {
        make_directories(directories);
    }
    begin(16);
    for (uint32_t at = 0; at < files; at++) {
        const char *path = names[at];
        struct stat found;
        int file;
        switch (part) {
        case 0:
            file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
            must(file >= 0, "open", path);
            must(write(file, content, bytes) >= 0, "write", path);
            close(file);
            break;
        case 1:
            file = open(path, O_RDONLY | O_CLOEXEC);
            must(file >= 0, "open", path);
            must(read(file, content, bytes) >= 0, "read", path);
            consume(content, bytes);
            close(file);
            break;
        case 2:
            must(stat(path, &found) == 0, "stat", path);
            break;
        default:
            must(unlink(path) == 0, "unlink", path);
        }
        did(1);
    }
    end(phases[part]);
    free(names);
}

static void fill(const unsigned char *content, uint64_t bytes) {
    int file = open("file0", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    must(file >= 0, "open", "file0");
    for (uint64_t done = 0; done < bytes;) {
        ssize_t count = write(file, content, bytes - done < PIECE ? bytes - done : PIECE);
        must(count > 0, "write", "file0");
        done += (uint64_t)count;
    }
    close(file);
}

static void throughput(unsigned char *content) {
    static const char *phases[] = {"read-seq", "read-random", "write-seq", "write-random"};
    uint64_t bytes = number("bytes"), size = number("request"), passes = number("passes");
    if (number("threads") != 1 || size == 0 || bytes < size) {
        fail("throughput here is for one thread, and for requests no larger than the file");
    }
    uint64_t requests = bytes / size, *offsets = calloc(requests, sizeof *offsets);
    must(offsets != NULL, "calloc", "offsets");
    fill(content, bytes);
    for (int phase = 0; phase < 4; phase++) {
        int is_read = phase < 2;
        for (uint64_t at = 0; at < requests; at++) {
            offsets[at] = at * size;
        }
        begin(size < 65536 ? 65536 / size : 1);
        int file = open("file0", (is_read ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
        must(file >= 0, "open", "file0");
        for (uint64_t pass = 0; pass < passes; pass++) {
            if (phase % 2 == 1) {
                shuffle(offsets, requests);
            }
            for (uint64_t at = 0; at < requests; at++) {
                off_t offset = (off_t)offsets[at];
                ssize_t count = is_read ? pread(file, content, size, offset)
                                        : pwrite(file, content, size, offset);
                must(count >= 0, is_read ? "pread" : "pwrite", "file0");
                if (is_read) {
                    consume(content, size);
                }
                did((uint64_t)count);
            }
        }
        close(file);
        end(phases[phase]);
    }
    free(offsets);
}

static void stay_and_become(void) {
    const char *processor = value("processor"), *user = value("user");
    prctl(PR_SET_PDEATHSIG, 9);
    if (processor && *processor != 'n') {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(number("processor"), &set);
        must(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity", "processor");
    }
    if (user && *user == '[') {
        char *comma;
        uid_t uid = (uid_t)strtoul(user + 1, &comma, 10);
        gid_t gid = (gid_t)strtoul(comma + 1, NULL, 10);
        must(setgroups(0, NULL) == 0, "setgroups", "user");
        must(setresgid(gid, gid, gid) == 0, "setresgid", "user");
        must(setresuid(uid, uid, uid) == 0, "setresuid", "user");
        prctl(PR_SET_PDEATHSIG, 9);
    }
}

int main(void) {
    char experiment[64], kind[64], path[4096];
    size_t length = 0;
    must(fgets(request, sizeof request, stdin) != NULL, "fgets", "request");
    const char *turns = value("takes_turns");
    watch.takes_turns = turns && *turns == 't';
    if (watch.takes_turns) {
        wait_turn();
    }
    text("kind", kind, sizeof kind);
    text("experiment", experiment, sizeof experiment);
    if (strcmp(kind, "directory") != 0) {
        fail("the C loop works in directories only, not on a target of the kind %s", kind);
    }
    text("path", path, sizeof path);
    stay_and_become();
    must(chdir(path) == 0, "chdir", path);
    random_state = number("seed");
    sweep_words = number("sweep") / sizeof *swept;
    swept = malloc(sweep_words * sizeof *swept + 1);
    must(swept != NULL, "malloc", "sweep");
    for (uint64_t at = 0; at < sweep_words; at++) {
        swept[at] = 1;
    }
    int is_small = strcmp(experiment, "sprite-small") == 0;
    uint64_t most = number(is_small ? "bytes" : "request");
    most = most < PIECE ? PIECE : most;
    /* Begins with a page, as ours does: elsewhere copies may take twice as long. */
    unsigned char *content = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
    must(content != NULL, "aligned_alloc", "content");
    for (uint64_t at = 0; at < most; at++) {
        content[at] = (unsigned char)draw();
    }
    char *measured = NULL;
    answer = open_memstream(&measured, &length);
    must(answer != NULL, "open_memstream", "answer");
    if (is_small) {
        sprite_small(number("part"), content);
    } else if (strcmp(experiment, "throughput") == 0) {
        throughput(content);
    } else {
        fail("the C loop has no experiment %s", experiment);
    }
    must(fclose(answer) == 0, "fclose", "answer");
    printf("{\"Done\":{\"measured\":[%s]}}\n", measured);
    return fflush(stdout) == 0 ? 0 : 1;
}
