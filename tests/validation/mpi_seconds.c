/* Seconds that a thread spends communicating: inside MPI, or giving its core away while it waits for MPI.

   mpicc -shared -fPIC -O2 -o mpi_seconds.so mpi_seconds.c -ldl; LD_PRELOAD=./mpi_seconds.so mpiexec ...

   MPI's functions are taken at its profiling interface (PMPI, MPI 4.1, chapter 15). Arguments pass through untouched, as
   words of the machine: any library will do, and no mpi.h is needed. A function that calls another counts once. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

typedef long (*function)(long, long, long, long, long, long, long);

static __thread double spent;
static __thread int depth;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Of the calling thread, since it began. */
double communicating_seconds(void) { return spent; }

#define TIMED(name, real)                                                                     \
    long timed_##name(long, long, long, long, long, long, long) __asm__(#name);               \
    long timed_##name(long a, long b, long c, long d, long e, long f, long g) {               \
        static function call;                                                                 \
        if (!call) call = (function)real;                                                     \
        double begin = now();                                                                 \
        depth++;                                                                              \
        long found = call(a, b, c, d, e, f, g);                                               \
        if (--depth == 0) spent += now() - begin;                                             \
        return found;                                                                         \
    }
#define MPI(name)             \
    extern long PMPI_##name(); \
    TIMED(MPI_##name, PMPI_##name)

MPI(Allreduce)
MPI(Iallreduce)
MPI(Irecv)
MPI(Isend)
MPI(Test)
MPI(Testall)
MPI(Wait)
MPI(Waitall)
TIMED(clock_nanosleep, dlsym(RTLD_NEXT, "clock_nanosleep"))
TIMED(sched_yield, dlsym(RTLD_NEXT, "sched_yield"))
