// Runs the real binary as a child process. No sleeps: every wait ends with its event.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "config/file_descriptor.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {

struct Spawn {
  std::vector<std::string> arguments{};              // after the program's name
  std::map<std::string, std::string> environment{};  // on top of a clean one
  std::string stdin_text{};
  int in = -1;                   // becomes its stdin, instead of a pipe with stdin_text
  bool on_terminal = false;      // stdout is a terminal, which does not change the bytes
  bool err_on_terminal = false;  // likewise stderr
  bool as_nobody = false;        // with the rights of uid 65534; only root can
  std::vector<int> handed{};     // descriptors that it gets as 3, 4, ... with LISTEN_FDS, as a service manager does it
  bool deny_write_execute = false;        // MemoryDenyWriteExecute= of systemd.exec(5), by prctl(2)
  std::vector<int> closed{};              // descriptors that it does not have
  std::map<int, std::uint64_t> limits{};  // RLIMIT_... of setrlimit(2), both the soft and the hard one
  int out = -1, err = -1;                 // become its stdout and stderr instead of what Process collects
  int amx_error = 0;                      // errno with which the kernel refuses the permission to use the matrix unit
  std::string program = TROUPE_BINARY;
};

struct Finished {
  int code = -1;  // exit status, or 128 + the signal that ended it
  bool by_signal = false;
  std::string out, err;
};

// A child whose output is collected while it runs. Killed at the end if it has not ended.
class Process {
 public:
  static constexpr std::chrono::seconds kPatience{120};

  explicit Process(const Spawn& spawn);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Waits until stderr (or stdout) holds `text`; false when the child ended, or `patience` did, without it.
  bool wait_for_err(const std::string& text, std::chrono::seconds patience = kPatience) {
    return wait_for(err_, text, patience);
  }
  bool wait_for_out(const std::string& text) { return wait_for(out_, text, kPatience); }
  // What stdout has held so far.
  std::string out();
  // Waits for the end. Everything a test does takes seconds: after two minutes, or `patience`, the child is killed.
  Finished wait(std::chrono::seconds patience = kPatience);

 private:
  struct Stream {
    std::string text;
    bool closed = false;
  };
  bool wait_for(const Stream& stream, const std::string& text, std::chrono::seconds patience);
  void collect(int fd, Stream& stream);

  pid_t pid_ = -1;
  bool reaped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  Stream out_, err_;
  std::vector<std::thread> readers_;
};

// Whether this kernel can deny_write_execute (Linux 6.3).
bool can_deny_write_execute();

// Runs it to its end.
Finished run(const Spawn& spawn);
// `troupe ARGUMENTS...` in a clean environment.
Finished invoke(std::vector<std::string> arguments, const std::string& stdin_text = "");

// A connection to a server's socket.
FileDescriptor connect_to(const std::string& socket);
// A request of HTTP with this body, the last of its connection. fields: further ones, each with its line end.
std::string post_of(const std::string& path, const std::string& body, const std::string& fields = "");
// Sends it; returns the bytes of the answer.
std::string post(const std::string& socket, const std::string& path, const std::string& body,
                 const std::string& fields = "");

// A server on a private socket, ready when the constructor returns.
class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> arguments = {}, std::map<std::string, std::string> environment = {});

  const std::string& socket() const { return socket_; }
  Process& process() { return *process_; }
  // A subcommand against this server.
  Finished call(std::vector<std::string> arguments, const std::string& stdin_text = "") const;
  Spawn spawn(std::vector<std::string> arguments) const;
  // SIGTERM, then the end.
  Finished stop();

 private:
  TempFolder folder_;
  std::string socket_;
  std::unique_ptr<Process> process_;
};

}  // namespace troupe::test
