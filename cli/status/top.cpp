// troupe top: shows the server's status on the whole terminal, refreshed periodically.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/client/client_options.h"
#include "cli/status/top_screen.h"
#include "cli/subcommands.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/color.h"
#include "cli/terminal/exit_code.h"
#include "config/file_descriptor.h"
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
    fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  int fd() const { return fd_.get(); }
  // The next pending signal; 0: none.
  int next() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  FileDescriptor fd_{-1};
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

// Returns a key; ' ' at the time `until`; 'q' at a signal or the end of stdin; '\0' if the screen's size has changed.
// Arrows are j and k.
char wait_for_key(Signals& signals, std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ' ';
    std::array<pollfd, 2> files{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0}};
    if (::poll(files.data(), files.size(), static_cast<int>(left.count())) <= 0) continue;
    if (const int signal = signals.next()) return signal == SIGWINCH ? '\0' : 'q';
    if (files[0].revents == 0) continue;
    std::array<char, 16> keys{};
    const ssize_t size = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (size <= 0) return 'q';
    const std::string_view typed(keys.data(), static_cast<std::size_t>(size));
    if (typed == "\x1b[B" || typed == "\x1bOB") return 'j';
    if (typed == "\x1b[A" || typed == "\x1bOA") return 'k';
    if (typed.front() != '\x1b') return typed.front();
  }
}

// The server; after a failure the next status() connects again.
class Server {
 public:
  Server(std::unique_ptr<client::Client> client, const config::SocketOptions& options)
      : client_(std::move(client)), options_(options) {}

  Result<client::ServerStatus> status() {
    if (!client_) {
      auto again = connect_quietly(options_, "troupe top");
      if (!again) return again.error();
      client_ = std::move(*again);
    }
    auto status = client_->status(/*list_requests=*/true);
    if (!status) client_.reset();
    return status;
  }
  Status cancel(std::uint64_t request) {
    return client_ ? client_->cancel_request(request) : Error{ErrorCode::io, "there is no connection to the server"};
  }

 private:
  std::unique_ptr<client::Client> client_;  // null: the last status() failed
  const config::SocketOptions& options_;
};

void cancel_selected(Server& server, TopScreen& view) {
  const auto request = view.selected();
  if (!request) return;
  const Status cancelled = server.cancel(*request);
  view.say(cancelled ? fmt::format("request {} is cancelled", *request) : cancelled.error().message);
}

int watch(Server& server, Signals& signals, std::chrono::milliseconds interval) {
  FullScreen screen;
  TopScreen view(user_name);
  const bool colors = shows_colors(STDOUT_FILENO);
  while (true) {
    auto status = server.status();
    if (status)
      view.show(std::move(*status));
    else
      view.show_away(status.error().message);
    const auto next = std::chrono::steady_clock::now() + interval;
    auto act = TopScreen::Act::none;
    while (act == TopScreen::Act::none) {
      screen.show(colors ? view.colored_lines(screen_size()) : view.lines(screen_size(), /*with_keys=*/true));
      const char key = wait_for_key(signals, next);
      if (key == '\0') continue;
      if (std::chrono::steady_clock::now() >= next && key == ' ') break;  // not a key: a question stays
      act = view.press(key);
      if (act == TopScreen::Act::cancel) cancel_selected(server, view);
    }
    if (act == TopScreen::Act::stop) return kExitOk;
  }
}

}  // namespace

Result<int> top(const config::TopOptions& options) {
  std::optional<Signals> signals;
  if (!options.once) signals.emplace();  // before the client starts a thread: it inherits the mask
  auto client = connect(options, "troupe top");
  if (!client) return client.error();
  if (!options.once) {
    if (!::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO))
      return Error{ErrorCode::invalid_argument, "stdin and stdout are no terminal; use --once"};
    Server server(std::move(*client), options);
    return watch(server, *signals, options.interval);
  }
  auto status = (*client)->status(/*list_requests=*/true);
  if (!status) return status.error();
  TopScreen view(user_name);
  view.show(std::move(*status));
  for (const std::string& line : view.lines({.rows = 10'000, .columns = 160}, /*with_keys=*/false))
    std::cout << line << '\n';
  return kExitOk;
}

}  // namespace troupe::cli
