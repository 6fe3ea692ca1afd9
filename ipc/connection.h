// What connections have in common, whether they speak frames or HTTP: the socket, the tenant, the requests that are not
// fully answered, the outbox and its writer, timeouts. Used by the server's io thread only, except for the outbox.
#pragma once

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/frames/wire.h"
#include "ipc/hub.h"
#include "ipc/keys/strangers.h"
#include "ipc/outbox.h"
#include "ipc/rate_limits.h"
#include "ipc/sockets/connected_socket.h"
#include "ipc/sockets/listening_socket.h"
#include "ipc/sockets/peer_facts.h"
#include "ipc/streams.h"

namespace troupe::ipc {

// The shortest wait of a connection whose user sends too many requests: it then handles several at once.
inline constexpr std::chrono::milliseconds kPaceInterval{10};

// The other end of a connection.
struct Caller {
  Peer peer;              // over TCP: no process; our own uid, unless is_known
  PeerFacts facts;        // what the kernel said of it
  std::string address{};  // over TCP, as text without port
  bool is_tcp = false;
  bool is_known = true;              // the kernel has said which user it is; else it may be any, and is never an owner
  std::optional<Refusal> refused{};  // over TCP: why its requests are refused
};

// The peer of a Unix socket.
[[nodiscard]] Caller local_caller(const Hub& hub, const Peer& peer, int fd);
// Any client over TCP: only a key can say which tenant it is.
[[nodiscard]] Caller tcp_caller(std::string address);
// A client over TCP: the user that the kernel names; uid: nullopt where it names none.
[[nodiscard]] Caller named_tcp_caller(std::string address, std::optional<std::uint32_t> uid,
                                      std::vector<std::uint32_t> gids);
// The user that the caller's connections and rates are counted for, once it is no stranger.
[[nodiscard]] std::uint32_t user_of(const Caller& caller);
// Whether only a key can tell who the caller is.
[[nodiscard]] bool comes_as_stranger(const Hub& hub, const Caller& caller);

// The refusal of a client over TCP that has no uid here, and that no rule lets in.
[[nodiscard]] Refusal unnamed_over_tcp();

// The tenant of a peer, by the rules and with what owners may.
[[nodiscard]] scheduler::Tenant tenant_of(const TenantRules& rules, const PeerFacts& peer);
// The tenant of a connection before it names one: over TCP never an owner.
[[nodiscard]] scheduler::Tenant first_tenant(const Hub& hub, const Caller& caller);
// As tenant_of() for a client that acts for the tenant `label` (TenantRules::find(); empty: it does not), or why it may
// not; `field` is what named it. No such client is an owner.
[[nodiscard]] std::variant<scheduler::Tenant, Refusal> tenant_for(const TenantRules& rules, const PeerFacts& peer,
                                                                  const std::string& label, const char* field);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual void start() = 0;
  // The server begins to drain.
  virtual void announce_draining() = 0;
  // Sends what is queued, refuses (draining) what would not be answered any more; then closes.
  virtual void close_when_flushed() = 0;
  // Decides the tenant of the next requests by the rules as they are now. Ends the connection if it acts for a tenant
  // and may not any more.
  void take_rules();
  // Cancels all streams, sends `refusal`, then closes.
  void break_off(const Refusal& refusal);
  // Cancels all streams and closes, now. Idempotent.
  void close();
  // Checks the timeouts; returns whether any is still running.
  bool tick(Clock::time_point now);
  std::uint32_t uid() const { return caller_.peer.uid; }
  User& user() const { return *user_; }
  // Counts for another user from now on; what is counted of connections is the caller's.
  void set_user(User& user) { user_ = &user; }
  // Over TCP, where keys are asked for, without a user that the kernel names: it has shown no right key, or a wrong one
  // after it.
  bool is_stranger() const { return user_ == &hub_.strangers; }
  bool is_admitted(const Guests& guests) {
    if (caller_.is_tcp) return !caller_.is_known || admitted(caller_.peer.uid, caller_.facts.gids, guests);
    return admitted(caller_.peer, socket_.native_handle(), guests);
  }
  Streams& streams() { return streams_; }
  std::uint64_t outbox_bytes() const { return outbox_->bytes(); }
  // Since when it has been kept for a next request, of which nothing has come; nullopt: it is used, or was never.
  virtual std::optional<Clock::time_point> idle_since() { return std::nullopt; }
  // Of one that is a stranger.
  virtual Stranger stranger() { return {}; }
  // Whether it has sent what was not looked at yet, though it has read what it was sent.
  virtual bool has_unread() { return false; }

 protected:
  Connection(Hub& hub, Caller caller, Socket&& socket);

  // What a kind of connection does itself.
  // Why the connection ends now, if a timeout of the client has passed.
  virtual std::optional<Refusal> overdue(Clock::time_point now) = 0;
  // Checks timeouts that end no connection with a refusal; returns whether any is running.
  virtual bool watch(Clock::time_point now) = 0;
  // The last bytes to a client whose connection is broken off.
  virtual std::string last_words(const Refusal& refusal) = 0;
  // Appends what an item of the outbox is on the wire.
  virtual void encode(Outgoing&& item, std::string& bytes) = 0;
  virtual void end_batch(std::string&) {}  // after the last item that is written at once
  virtual void written() {}                // what was to be written at once
  virtual void flushed() { close(); }      // everything is written, and the connection is to end
  virtual void before_wait() {}            // the connection will not read for a while
  virtual void on_close() {}
  // Decides tenant_ anew; why the client may not act for the tenant that it names, if it may not.
  virtual std::optional<Refusal> decide_tenant() = 0;

  // Runs a coroutine of the connection; only std::bad_alloc is thrown there: it ends this connection and no other.
  void spawn(asio::awaitable<void> loop);
  asio::awaitable<void> write_loop();
  // Waits for `time`, or until leave_ is cancelled; then closes the connection if the client has hung up.
  asio::awaitable<void> wait(std::chrono::milliseconds time);
  // Waits while answers fill half of the outbox, or the user has sent as many requests as the rate allows.
  asio::awaitable<void> wait_for_leave();
  // Waits as long as the tenant's RefusalPace says; usually not at all.
  asio::awaitable<void> wait_after_refusals();
  // Waits until max_buffer_bytes has room for a large message of so many bytes.
  asio::awaitable<bool> wait_for_room(std::uint64_t bytes, std::optional<Clock::time_point> until = std::nullopt);
  // Runs `work` on the decoder thread, so that other connections need not wait. What it works on stays valid, because
  // this connection lives and does nothing else meanwhile.
  asio::awaitable<void> elsewhere(std::function<void()> work);

  void set_tenant(scheduler::Tenant tenant);
  // Why a request waits for its model; nullopt: it waits for no load, or there is no such request. Of several prompts
  // for one model, the first one's.
  std::optional<actors::LoadWait> load_wait(std::uint64_t stream) const;
  // No request is read until the client has read more of its answers. Of a stranger's none waits beside another.
  bool outbox_is_full() const { return is_stranger() ? outbox_->bytes() > 0 : outbox_->is_half_full(); }
  // The same as the public one, with the bytes that say it to the client; `why` is for the log.
  void break_off(const std::string& why, std::string last_bytes);
  // No more requests; the write loop sends what is queued, then flushed() is called, or close() after a while.
  void close_after_writing();
  // The same when the socket has been moved to another connection.
  void leave_socket();
  void arm_goodbye(std::chrono::milliseconds time);
  // Counts and logs a connection that is ended for this reason.
  void note_broken(const std::string& why);
  std::string peer_name() const;  // for the log
  ActiveFor active_for() const;   // likewise

  Hub& hub_;
  Socket socket_;
  Caller caller_;
  // Of the next requests. Those that came before keep theirs, and the connection's buffers are always counted for the
  // one at its begin, or for that of its last right key.
  scheduler::Tenant tenant_;
  std::shared_ptr<Tally> tally_;  // of tenant_; not null
  User* user_;                    // not null
  const std::shared_ptr<Outbox> outbox_;
  BufferShare input_;  // of a large message, from its header until it is handled
  ReadPace pace_;
  Streams streams_;
  const Clock::time_point accepted_at_ = Clock::now();
  Clock::time_point last_read_ = Clock::now();
  std::optional<Clock::time_point> write_progress_;  // last progress of the running write; none: no write is running
  bool decoding_ = false;                            // a large message is being decoded on the decoder thread
  bool held_back_ = false;                           // in wait_for_leave(), wait_after_refusals() or wait_for_room()
  bool closing_ = false;

 private:
  void on_wake();

  asio::steady_timer wake_;     // never expires; cancelled when the outbox has something
  asio::steady_timer goodbye_;  // closes the connection if the last bytes are not sent in time
  asio::steady_timer decoded_;  // never expires; cancelled when work elsewhere has been done
  asio::steady_timer leave_;    // the timer of wait()
};

// Goes on with a connection that speaks HTTP. `begun`: bytes that were read already.
void serve_http(Hub& hub, Caller caller, Socket&& socket, std::string begun = {});  // in http/http_connection.cpp

}  // namespace troupe::ipc
