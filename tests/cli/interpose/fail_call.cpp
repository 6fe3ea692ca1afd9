// A shared library for LD_PRELOAD: makes one chosen call of the C library fail, or wait. Calls are counted from before
// main() on, over all threads, by kind:
//
//   malloc   malloc, calloc, realloc and aligned ones, and so operator new      ENOMEM
//   mmap                                                                        ENOMEM
//   thread   pthread_create                                                     EAGAIN
//   open     open, openat, fopen                                                EMFILE
//   socket                                                                      EMFILE
//   event    eventfd, epoll_create1, timerfd_create, signalfd                   EMFILE
//   write    write, writev, pwrite, send, sendto, sendmsg                       EIO
//   recv     recv, recvmsg                                                      EAGAIN
//   madvise  pwrite  fsync                                                      EIO
//   chmod  unlink  mkdir  rename                                                EIO; not in COUNT_CALLS
//
// What hwloc calls while it begins and looks at the machine is not counted: version 2.9 follows null pointers where an
// allocation fails. A server asks it at its start, before the model takes memory.
//
//   FAIL_CALL=KIND:N        the N-th call of KIND fails
//   HOLD_CALL=KIND:N:FIFO   the N-th call of KIND opens FIFO for reading and waits for its end before it goes on
//   COUNT_CALLS=FILE        "KIND COUNT" lines are written there at a normal end of the process
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

enum Kind {
  kMalloc,
  kMmap,
  kThread,
  kOpen,
  kSocket,
  kEvent,
  kWrite,
  kReceive,
  kMadvise,
  kPwrite,
  kFsync,
  kNumCounted,
  kChmod = kNumCounted,
  kUnlink,
  kMkdir,
  kRename,
  kNumKinds
};
constexpr const char* kNames[kNumKinds] = {"malloc",  "mmap",   "thread", "open",  "socket", "event", "write", "recv",
                                           "madvise", "pwrite", "fsync",  "chmod", "unlink", "mkdir", "rename"};

std::atomic<bool> counting{false};
thread_local bool in_hwloc = false;
std::atomic<long> counts[kNumKinds];
long fail_at[kNumKinds], hold_at[kNumKinds];
const char* fifo = nullptr;

void parse(const char* variable, long* at, bool holds) {
  const char* text = std::getenv(variable);
  if (!text) return;
  for (int kind = 0; kind < kNumKinds; ++kind) {
    const std::size_t length = std::strlen(kNames[kind]);
    if (std::strncmp(text, kNames[kind], length) != 0 || text[length] != ':') continue;
    char* end = nullptr;
    at[kind] = std::strtol(text + length + 1, &end, 10);
    if (holds) fifo = end + 1;
  }
}

template <class Function>
Function* next(Function* /*of this type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void hold() {
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, fifo, O_RDONLY | O_CLOEXEC));
  char byte;
  while (::read(fd, &byte, 1) > 0) {
  }
  ::close(fd);
}

// Counts a call; whether it is to fail.
bool fails(Kind kind, int error) {
  if (!counting.load(std::memory_order_relaxed) || in_hwloc) return false;
  const long number = counts[kind].fetch_add(1) + 1;
  if (number == hold_at[kind]) hold();
  if (number != fail_at[kind]) return false;
  errno = error;
  return true;
}

// Calls a function of hwloc.
template <class Function, class Topology>
int uncounted(const char* name, Topology topology) {
  auto* const real = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  in_hwloc = true;
  const int result = real(topology);
  in_hwloc = false;
  return result;
}

int (*real_main)(int, char**, char**);

int counted_main(int argc, char** argv, char** environment) { return real_main(argc, argv, environment); }

__attribute__((destructor)) void write_counts() {
  counting = false;
  const char* path = std::getenv("COUNT_CALLS");
  if (!path) return;
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  for (int kind = 0; kind < kNumCounted; ++kind) ::dprintf(fd, "%s %ld\n", kNames[kind], counts[kind].load());
  ::close(fd);
}

}  // namespace

extern "C" {

// All libraries are there by now; what follows are this program's own objects, and main().
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  parse("FAIL_CALL", fail_at, false);
  parse("HOLD_CALL", hold_at, true);
  real_main = main;
  const auto start = next(&__libc_start_main, "__libc_start_main");
  counting = true;
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

void* malloc(std::size_t bytes) { return fails(kMalloc, ENOMEM) ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) { return fails(kMalloc, ENOMEM) ? nullptr : __libc_realloc(old, bytes); }
void* memalign(std::size_t alignment, std::size_t bytes) {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  void* memory = memalign(alignment, bytes);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  static const auto real = next(&mmap, "mmap");
  return fails(kMmap, ENOMEM) ? MAP_FAILED : real(address, bytes, protection, flags, fd, offset);
}
void* mmap64(void* address, std::size_t bytes, int protection, int flags, int fd, off64_t offset) noexcept {
  return mmap(address, bytes, protection, flags, fd, offset);
}
int madvise(void* address, std::size_t bytes, int advice) noexcept {
  static const auto real = next(&madvise, "madvise");
  return fails(kMadvise, EIO) ? -1 : real(address, bytes, advice);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  static const auto real = next(&pthread_create, "pthread_create");
  return fails(kThread, EAGAIN) ? EAGAIN : real(thread, attributes, run, argument);
}

int openat(int folder, const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);  // whatever lies there, where none was given: it is not looked at then
  va_end(list);
  static const auto real = next(&openat, "openat");
  return fails(kOpen, EMFILE) ? -1 : real(folder, path, flags, mode);
}
int open(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  return openat(AT_FDCWD, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  return openat(folder, path, flags, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
  static const auto real = next(&fopen, "fopen");
  return fails(kOpen, EMFILE) ? nullptr : real(path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

int socket(int domain, int type, int protocol) noexcept {
  static const auto real = next(&socket, "socket");
  return fails(kSocket, EMFILE) ? -1 : real(domain, type, protocol);
}

int eventfd(unsigned count, int flags) noexcept {
  static const auto real = next(&eventfd, "eventfd");
  return fails(kEvent, EMFILE) ? -1 : real(count, flags);
}
int epoll_create1(int flags) noexcept {
  static const auto real = next(&epoll_create1, "epoll_create1");
  return fails(kEvent, EMFILE) ? -1 : real(flags);
}
int timerfd_create(int clock, int flags) noexcept {
  static const auto real = next(&timerfd_create, "timerfd_create");
  return fails(kEvent, EMFILE) ? -1 : real(clock, flags);
}
int signalfd(int fd, const sigset_t* set, int flags) noexcept {
  static const auto real = next(&signalfd, "signalfd");
  return fails(kEvent, EMFILE) ? -1 : real(fd, set, flags);
}

ssize_t write(int fd, const void* bytes, std::size_t count) {
  static const auto real = next(&write, "write");
  return fails(kWrite, EIO) ? -1 : real(fd, bytes, count);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  static const auto real = next(&writev, "writev");
  return fails(kWrite, EIO) ? -1 : real(fd, parts, count);
}
ssize_t pwrite(int fd, const void* bytes, std::size_t count, off_t offset) {
  static const auto real = next(&pwrite, "pwrite");
  return fails(kPwrite, EIO) ? -1 : real(fd, bytes, count, offset);
}
ssize_t pwrite64(int fd, const void* bytes, std::size_t count, off64_t offset) {
  return pwrite(fd, bytes, count, offset);
}
int fsync(int fd) {
  static const auto real = next(&fsync, "fsync");
  return fails(kFsync, EIO) ? -1 : real(fd);
}
int chmod(const char* path, mode_t mode) noexcept {
  static const auto real = next(&chmod, "chmod");
  return fails(kChmod, EIO) ? -1 : real(path, mode);
}
int unlink(const char* path) noexcept {
  static const auto real = next(&unlink, "unlink");
  return fails(kUnlink, EIO) ? -1 : real(path);
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = next(&rename, "rename");
  return fails(kRename, EIO) ? -1 : real(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static const auto real = next(&renameat2, "renameat2");
  return fails(kRename, EIO) ? -1 : real(from_folder, from, to_folder, to, flags);
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static const auto real = next(&mkdirat, "mkdirat");
  return fails(kMkdir, EIO) ? -1 : real(folder, path, mode);
}
ssize_t send(int fd, const void* bytes, std::size_t count, int flags) {
  static const auto real = next(&send, "send");
  return fails(kWrite, EIO) ? -1 : real(fd, bytes, count, flags);
}
ssize_t sendto(int fd, const void* bytes, std::size_t count, int flags, const sockaddr* to, socklen_t size) {
  static const auto real = next(&sendto, "sendto");
  return fails(kWrite, EIO) ? -1 : real(fd, bytes, count, flags, to, size);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = next(&sendmsg, "sendmsg");
  return fails(kWrite, EIO) ? -1 : real(fd, message, flags);
}

ssize_t recv(int fd, void* bytes, std::size_t count, int flags) {
  static const auto real = next(&recv, "recv");
  return fails(kReceive, EAGAIN) ? -1 : real(fd, bytes, count, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = next(&recvmsg, "recvmsg");
  return fails(kReceive, EAGAIN) ? -1 : real(fd, message, flags);
}

// Without hwloc's header: a test needs none.
int hwloc_topology_init(void** topology) { return uncounted<int(void**)>("hwloc_topology_init", topology); }
int hwloc_topology_load(void* topology) { return uncounted<int(void*)>("hwloc_topology_load", topology); }

}  // extern "C"
