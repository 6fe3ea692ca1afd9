// troupe top: shows the server's status on the whole terminal, refreshed periodically.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/connect.h"
#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "cli/top_screen.h"
#include "ipc/client/client.h"

namespace troupe::cli {
namespace {

// A signalfd for the signals that end the program or change the terminal's size.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() { ::close(fd_); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  // The next pending signal; 0: none.
  int next() const {
    signalfd_siginfo info{};
    return ::read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int fd_;
};

// The terminal's alternate screen, with unbuffered keys and no echo. The destructor restores the previous screen.
class FullScreen {
 public:
  FullScreen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;  // alternate screen, no cursor
  }
  ~FullScreen() {
    std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // Overwrites the screen line by line without clearing it, so that it does not flicker.
  void show(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) text += (i ? "\r\n" : "") + lines[i] + "\x1b[K";
    std::cout << text << "\x1b[J" << std::flush;
  }

 private:
  termios before_{};
};

ScreenSize screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

enum class Wish { look_again, draw_again, stop };

// Waits until `until`, a key or a signal. A closed terminal counts as a wish to quit.
Wish wait_for_wish(Signals& signals, std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Wish::look_again;
    std::array<pollfd, 2> files{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0}};
    if (::poll(files.data(), files.size(), static_cast<int>(left.count())) <= 0) continue;
    if (const int signal = signals.next()) return signal == SIGWINCH ? Wish::draw_again : Wish::stop;
    if (files[0].revents == 0) continue;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return Wish::stop;
    if (key == ' ') return Wish::look_again;
  }
}

Result<int> watch(client::Client& client, Signals& signals, std::chrono::milliseconds interval) {
  FullScreen screen;
  std::optional<client::ServerStatus> before, now;
  while (true) {
    auto status = client.status(/*list_requests=*/true);
    if (!status) return status.error();
    before = std::exchange(now, std::move(*status));
    const auto next = std::chrono::steady_clock::now() + interval;
    Wish wish = Wish::draw_again;
    while (wish == Wish::draw_again) {
      const ScreenSize size = screen_size();
      std::vector<std::string> lines = top_screen(*now, before, size);
      if (lines.size() < size.rows) {
        lines.resize(size.rows - 1);
        lines.push_back(std::string("q: end   space: look now").substr(0, size.columns));
      }
      screen.show(lines);
      wish = wait_for_wish(signals, next);
    }
    if (wish == Wish::stop) return kExitOk;
  }
}

}  // namespace

Result<int> top(const config::Parsed& parsed) {
  std::optional<Signals> signals;
  if (!parsed.options.once) signals.emplace();  // before the client starts a thread: it inherits the mask
  const auto client = connect(parsed.options, "troupe top");
  if (!client) return client.error();
  if (!parsed.options.once) {
    if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) return watch(**client, *signals, parsed.options.interval);
    return Error{ErrorCode::invalid_argument, "stdin and stdout are no terminal; use --once"};
  }
  const auto status = (*client)->status(/*list_requests=*/true);
  if (!status) return status.error();
  for (const std::string& line : top_screen(*status, std::nullopt, {.rows = 10'000, .columns = 160}))
    std::cout << line << '\n';
  return kExitOk;
}

}  // namespace troupe::cli
