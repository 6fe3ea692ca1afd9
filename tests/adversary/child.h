// Child processes of this program, and figures of any process from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/adversary/client.h"

namespace troupe::adversary {

// A forked process that works as another user and writes what it found into a pipe.
class Child {
 public:
  // work(fd) runs in the child, which exits after it. uid: the child's user, absent: ours. niceness: setpriority().
  Child(std::optional<uid_t> uid, int niceness, const std::function<void(int)>& work);
  ~Child();  // killed and waited for
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  // Collects what there is to read, waiting at most that long; false once the child has ended.
  bool collect(std::chrono::milliseconds patience);
  // All that the child has written.
  const std::string& text() const { return text_; }
  void kill() const;

 private:
  pid_t pid_ = -1;
  Descriptor pipe_;
  std::string text_;
};

// A server on a socket in a folder of its own.
class ServerProcess {
 public:
  struct Options {
    std::string program;
    std::string folder;
    std::vector<std::string> arguments{};  // after `serve --socket PATH`
    bool with_key = false;                 // it listens on TCP, too, for holders of a key
  };
  explicit ServerProcess(Options options);
  ~ServerProcess();  // kills the process if it runs
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& socket() const { return socket_; }
  // With a key: where it listens, as connect_to() takes it, and the key.
  const std::string& tcp() const { return tcp_; }
  const std::string& key() const { return key_; }
  std::string log() const;
  // False: it ended, or the time was up.
  bool wait_for_log(const std::string& text, std::chrono::milliseconds patience);
  void signal(int number) const;
  // Exit status, or 128 and the signal; absent while it runs.
  std::optional<int> ended();
  std::optional<int> wait(std::chrono::milliseconds patience);
  bool socket_exists() const;

 private:
  std::string socket_, log_path_, tcp_, key_;
  pid_t pid_ = -1;
  std::optional<int> code_;
};

// Runs `program ARGUMENTS` to its end and returns what it printed; nothing unless it ended with 0.
std::optional<std::string> output_of(const std::vector<std::string>& command);

// Bytes; 0 if there is no such process.
std::uint64_t resident_bytes(pid_t pid);
// The largest since reset_peak().
std::uint64_t peak_resident_bytes(pid_t pid);
void reset_peak(pid_t pid);
// CPU time that a process has used, that this one and its children that have ended have, and that all of the machine's
// CPUs were busy.
Seconds cpu_time(pid_t pid);
Seconds own_cpu_time();
Seconds machine_cpu_time();
// Whether a thread of it runs or waits for a CPU.
bool has_work(pid_t pid);

// Sleeps: processes are watched by polling.
void pause_for(std::chrono::milliseconds time);

}  // namespace troupe::adversary
