// What `troupe top` shows, as lines of text, and what its keys do. Uses neither a terminal nor a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ipc/client/client.h"

namespace troupe::cli {

struct ScreenSize {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

class TopScreen {
 public:
  // user_name: returns the name of a user; called for each line that shows one.
  explicit TopScreen(std::function<std::string(std::uint32_t uid)> user_name) : user_name_(std::move(user_name)) {}

  // The server's status now.
  void show(client::ServerStatus status);
  // The server does not answer: shows why, above the last status, until the next show().
  void show_away(const std::string& why) { away_ = why; }
  // Shows a message in the last line until the next key.
  void say(std::string news) { news_ = std::move(news); }

  enum class Act { none, look, stop, cancel };
  // What a key asks the caller to do: q stop, space look, c and then y cancel the request selected(). The other keys
  // change the view: s the order, j and k (down and up) choose a request.
  Act press(char key);
  // The number of the chosen request, if it is still live.
  [[nodiscard]] std::optional<std::uint64_t> selected() const;

  // At most size.rows lines of at most size.columns bytes. Speeds are between the last two looks, or since the server's
  // start. with_keys: the last line says which keys there are.
  [[nodiscard]] std::vector<std::string> lines(ScreenSize size, bool with_keys) const;
  // Those with keys, with escape sequences: the server's state in its colour, and in yellow that it does not answer and
  // the question whether to cancel.
  [[nodiscard]] std::vector<std::string> colored_lines(ScreenSize size) const;

 private:
  enum class Order { phase, age, tokens, user };
  std::vector<client::LiveRequest> sorted() const;
  // The name of the tenant, or of the user, that the request counts for.
  std::string whose(const client::LiveRequest& request) const;
  std::vector<std::string> table(std::size_t rows) const;
  std::string bottom() const;
  void choose(int step);

  std::function<std::string(std::uint32_t)> user_name_;
  std::optional<client::ServerStatus> now_, before_;
  std::string away_;  // why the server does not answer; empty: it does
  std::string news_;
  Order order_ = Order::phase;
  std::optional<std::uint64_t> selected_;
  bool asks_to_cancel_ = false;
};

}  // namespace troupe::cli
