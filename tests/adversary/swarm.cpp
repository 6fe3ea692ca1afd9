#include "tests/adversary/swarm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace troupe::adversary {
namespace {

// The longest time of one connect, and the pause after a failed one: the other connections go on meanwhile.
constexpr std::chrono::milliseconds kConnectPatience{200};
constexpr std::chrono::milliseconds kConnectPause{50};

}  // namespace

void Swarm::open(std::size_t number) {
  links_[number] = std::make_unique<Link>();
  Link& link = *links_[number];
  link.number = number;
  link.socket_ = connect_to(options_.socket, kConnectPatience, options_.receive_buffer);
  if (!link.socket_.is_open()) {
    ++tally_[std::string("connect ") + std::strerror(errno)];
    link.next = Clock::now() + kConnectPause;
    return;
  }
  ::fcntl(link.socket_.get(), F_SETFL, O_NONBLOCK);
  ++tally_["connected"];
  if (options_.greets) link.send(hello_frame());
}

void Swarm::write(Link& link) {
  if (link.unsent() == 0) {
    link.out_.clear();
    link.sent_ = 0;
    on_room(link);
  }
  if (link.unsent() == 0 || link.closed_) return;
  const std::size_t size = std::min(link.unsent(), link.max_write);
  const ssize_t sent = ::send(link.socket_.get(), link.out_.data() + link.sent_, size, MSG_NOSIGNAL);
  if (sent > 0) {
    link.sent_ += static_cast<std::size_t>(sent);
    tally_["sent_bytes"] += static_cast<std::uint64_t>(sent);
  } else if (errno != EAGAIN && errno != EINTR) {
    ++tally_["connections ended"];
    link.closed_ = true;
  }
}

void Swarm::read(Link& link) {
  std::array<char, 64 << 10> buffer;
  const ssize_t size = ::recv(link.socket_.get(), buffer.data(), std::min(buffer.size(), link.max_read), 0);
  if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
    ++tally_["connections ended"];
    link.closed_ = true;
  }
  if (size <= 0) return;
  if (options_.speaks_http) return count_statuses({buffer.data(), static_cast<std::size_t>(size)});
  link.cutter_.append({buffer.data(), static_cast<std::size_t>(size)});
  while (const auto body = link.cutter_.next()) {
    const auto answer = read_answer(*body);
    if (!answer) {
      ++tally_["not a ServerFrame"];
      continue;
    }
    std::string name = answer->reply == Reply::refused
                           ? "Refused " + outcome_name(answer->outcome) + " " + answer->field
                           : to_string(*answer).substr(0, 40);
    ++tally_[name];
    on_answer(link, *answer);
  }
}

void Swarm::count_statuses(std::string_view bytes) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  for (std::size_t at = 0; (at = bytes.find(kVersion, at)) != std::string_view::npos; at += kVersion.size())
    ++tally_["HTTP " + std::string(bytes.substr(at + kVersion.size(), 3))];
}

void Swarm::turn() {
  std::vector<pollfd> polled;
  std::vector<Link*> open_links;
  const auto now = Clock::now();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i]->socket_.is_open() && options_.comes_again && now >= links_[i]->next) open(i);
    Link& link = *links_[i];
    if (!link.socket_.is_open()) continue;
    on_turn(link);
    if (link.unsent() == 0) on_room(link);
    short events = 0;
    if (link.reads) events |= POLLIN;
    if (link.unsent() > 0) events |= POLLOUT;
    polled.push_back({.fd = link.socket_.get(), .events = events, .revents = 0});
    open_links.push_back(&link);
  }
  ::poll(polled.data(), polled.size(), 1);
  for (std::size_t i = 0; i < polled.size(); ++i) {
    Link& link = *open_links[i];
    if (polled[i].revents & POLLIN && link.reads) read(link);
    if (polled[i].revents & (POLLOUT | POLLERR | POLLHUP) && !link.closed_) write(link);
    if (polled[i].revents & (POLLERR | POLLHUP) && !(polled[i].revents & POLLIN && link.reads)) link.closed_ = true;
    if (link.closed_) link.socket_.close();
  }
}

void Swarm::run(Clock::time_point until) {
  links_.resize(options_.connections);
  for (std::size_t i = 0; i < links_.size(); ++i) open(i);
  while (Clock::now() < until) turn();
  links_.clear();
}

}  // namespace troupe::adversary
