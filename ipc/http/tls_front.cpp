#include "ipc/http/tls_front.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio.hpp>
#include <asio/ssl.hpp>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "config/plain_file.h"
#include "config/system_error.h"
#include "ipc/sockets/connected_socket.h"

namespace troupe::ipc::http {
namespace {

using Context = std::shared_ptr<asio::ssl::context>;

constexpr std::size_t kBufferBytes = 16u << 10;         // the longest record of TLS
constexpr std::size_t kMaxCertificateBytes = 1u << 20;  // with its chain
constexpr int kPairBufferBytes = 32 << 10;              // that the kernel holds, each way; it doubles it
constexpr std::chrono::seconds kFlushTime{2};

// What a client gets that speaks HTTP without TLS, without it.
constexpr std::string_view kNoTls =
    R"({"error":{"message":"this address speaks HTTPS, and plain HTTP came: begin the address with https://",)"
    R"("type":"invalid_request_error","param":null,"code":"https_required"}})";
std::string answer_without_tls() {
  return fmt::format(
      "HTTP/1.1 400 Bad Request\r\nServer: troupe\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\nConnection: "
      "close\r\n\r\n{}",
      kNoTls.size(), kNoTls);
}

Error file_error(ErrorCode code, const std::string& path, const std::string& why) {
  return {code, fmt::format("{}: {}", path, why)};
}

// OpenSSL's reason for the last failure, in this thread.
std::string openssl_reason() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return reason ? reason : "it is not what it should be";
}

Status check_private(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0)
    return system_error(path + ": cannot be read", errno, ErrorCode::bad_config);
  if (!S_ISREG(info.st_mode)) return file_error(ErrorCode::bad_config, path, "is no file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return file_error(ErrorCode::permission, path,
                      fmt::format("belongs to uid {}, and this is uid {}; chown it", info.st_uid, ::geteuid()));
  if ((info.st_mode & 027) != 0)
    return file_error(ErrorCode::permission, path,
                      fmt::format("has mode {:03o}: other users may read the private key, or change it; chmod 600 it",
                                  info.st_mode & 0777));
  return Ok{};
}

// A client that offers other protocols than HTTP/1.1 is answered with HTTP/1.1, or with none if it offers only others.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned offered_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  const int outcome = ::SSL_select_next_proto(&found, size, kHttp11, sizeof(kHttp11) - 1, offered, offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

Result<Context> make_context(const std::string& certificate, const std::string& key) {
  if (const Status good = check_private(key); !good) return good.error();
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  ::SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  ::SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  ::SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
  // Else a key with a passphrase would be asked for on the terminal.
  context->set_password_callback([](std::size_t, asio::ssl::context::password_purpose) { return std::string(); });
  ::ERR_clear_error();
  // Read first: OpenSSL would wait for a pipe.
  const auto chain = read_plain_file(certificate, kMaxCertificateBytes);
  if (!chain) return Error{ErrorCode::bad_config, chain.error().message};
  if (asio::error_code failed; context->use_certificate_chain(asio::buffer(*chain), failed))
    return file_error(ErrorCode::bad_config, certificate,
                      fmt::format("cannot be used as a certificate (PEM): {}", openssl_reason()));
  if (::SSL_CTX_use_PrivateKey_file(native, key.c_str(), SSL_FILETYPE_PEM) != 1)
    return file_error(ErrorCode::bad_config, key,
                      fmt::format("cannot be used as the private key (PEM, without passphrase) of {}: {}", certificate,
                                  openssl_reason()));
  if (::SSL_CTX_check_private_key(native) != 1)
    return file_error(ErrorCode::bad_config, key, fmt::format("is not the private key of {}", certificate));
  return context;
}

// How many connections there are, and how many have something to send.
class Census {
 public:
  bool enter(std::size_t most) {
    const std::lock_guard lock(mutex_);
    if (open_ >= most) return false;
    ++open_;
    ++sending_;
    return true;
  }
  void has_sent() { leave(sending_); }
  void has_closed() { leave(open_); }
  void wait_until_sent(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return sending_ == 0; });
  }
  std::size_t num_open() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  void leave(std::size_t& count) {
    const std::lock_guard lock(mutex_);
    --count;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_ = 0, sending_ = 0;
};

// A connection's place in the census.
class Place {
 public:
  explicit Place(std::shared_ptr<Census> census) : census_(std::move(census)) {}
  ~Place() {
    sent();
    census_->has_closed();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  // Everything that was to be sent has been.
  void sent() {
    if (!std::exchange(has_sent_, true)) census_->has_sent();
  }

 private:
  const std::shared_ptr<Census> census_;
  bool has_sent_ = false;
};

class TlsPipe;

// The connections that wait for their clients to close, in the order in which they began to. On the tls thread.
class Ending {
 public:
  Ending(std::size_t most, std::chrono::milliseconds its_time) : time(its_time), most_(most) {}
  void add(const std::shared_ptr<TlsPipe>& pipe);
  const std::chrono::milliseconds time;

 private:
  const std::size_t most_;
  std::list<std::weak_ptr<TlsPipe>> pipes_;
};

// One connection: decrypts to one end of the pair, encrypts what comes from it. Lives as long as its loops.
class TlsPipe : public std::enable_shared_from_this<TlsPipe> {
 public:
  TlsPipe(asio::io_context& io, Context context, std::unique_ptr<Place> place, std::shared_ptr<Ending> ending,
          int family, FileDescriptor tcp, FileDescriptor inner)
      : context_(std::move(context)),
        place_(std::move(place)),
        ending_(std::move(ending)),
        tls_(connected_socket(io, family, std::move(tcp)), *context_),
        inner_(connected_socket(io, AF_UNIX, std::move(inner))),
        deadline_(io) {}
  ~TlsPipe() = default;
  TlsPipe(const TlsPipe&) = delete;
  TlsPipe& operator=(const TlsPipe&) = delete;

  void start(std::chrono::milliseconds handshake_timeout) {
    close_after(handshake_timeout);
    run(handshake());
    run(watch_server());
  }
  void close() {
    asio::error_code ignored;
    deadline_.cancel();
    tls_.next_layer().close(ignored);
    inner_.close(ignored);
  }

 private:
  void run(asio::awaitable<void> loop) {
    asio::co_spawn(inner_.get_executor(), std::move(loop),
                   [self = shared_from_this()](const std::exception_ptr& thrown) {
                     if (thrown) self->close();  // only std::bad_alloc
                   });
  }

  asio::awaitable<void> handshake() {
    const auto self = shared_from_this();
    asio::error_code error;
    const auto first = co_await first_byte();
    if (!first) co_return close();
    // A record of TLS begins with 22; a method of HTTP with a letter.
    if (*first >= 'A' && *first <= 'Z') co_return co_await answer_in_the_clear();
    co_await tls_.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return close();
    deadline_.cancel();
    has_shaken_hands_ = true;
    inner_.cancel(error);
    run(decrypt());
    run(encrypt());
  }

  // Ends the connection if the server has closed its end before the handshake is done, with nothing to say.
  asio::awaitable<void> watch_server() {
    const auto self = shared_from_this();
    asio::error_code error;
    co_await inner_.async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    char byte = 0;
    if (!error && !has_shaken_hands_ && ::recv(inner_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) close();
  }

  // What the client begins with, which stays in the socket; nullopt: nothing.
  asio::awaitable<std::optional<char>> first_byte() {
    asio::error_code error;
    for (;;) {
      co_await tls_.next_layer().async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
      char byte = 0;
      const ssize_t size = error ? 0 : ::recv(tls_.next_layer().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (size == 1) co_return byte;
      if (size == 0 || (errno != EAGAIN && errno != EINTR)) co_return std::nullopt;
    }
  }

  asio::awaitable<void> answer_in_the_clear() {
    asio::error_code ignored;
    has_shaken_hands_ = true;  // there will be no handshake
    inner_.close(ignored);     // the server sees that the client is gone
    const std::string answer = answer_without_tls();
    co_await asio::async_write(tls_.next_layer(), asio::buffer(answer),
                               asio::redirect_error(asio::use_awaitable, ignored));
    say_goodbye();
    co_await drop_rest();
  }

  // Ends the sending side, then reads what the client still sends: a socket that is closed with bytes unread resets the
  // connection, and the last answer might be lost.
  asio::awaitable<void> drop_rest() {
    std::array<char, kBufferBytes> buffer;
    asio::error_code error;
    tls_.next_layer().shutdown(asio::socket_base::shutdown_send, error);
    for (error = {}; !error;)
      co_await tls_.next_layer().async_read_some(asio::buffer(buffer),
                                                 asio::redirect_error(asio::use_awaitable, error));
  }

  asio::awaitable<void> decrypt() {
    const auto self = shared_from_this();
    std::array<char, kBufferBytes> buffer;
    asio::error_code error, ignored;
    while (true) {
      const std::size_t size =
          co_await tls_.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      co_await asio::async_write(inner_, asio::buffer(buffer, size), asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return close();  // the server has closed its end
    }
    inner_.shutdown(asio::socket_base::shutdown_send, ignored);
  }

  asio::awaitable<void> encrypt() {
    const auto self = shared_from_this();
    std::array<char, kBufferBytes> buffer;
    asio::error_code error, ignored;
    while (true) {
      const std::size_t size =
          co_await inner_.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      co_await asio::async_write(tls_, asio::buffer(buffer, size), asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return close();
    }
    say_goodbye();
    // "close notify", so that the client knows that nothing was cut off.
    co_await tls_.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
    co_await drop_rest();
  }

  void say_goodbye() {
    place_->sent();
    close_after(ending_->time);
    ending_->add(shared_from_this());
  }
  void close_after(std::chrono::milliseconds time) {
    deadline_.expires_after(time);
    deadline_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
      if (error) return;
      if (const auto self = weak.lock()) self->close();
    });
  }

  const Context context_;
  const std::unique_ptr<Place> place_;
  const std::shared_ptr<Ending> ending_;
  bool has_shaken_hands_ = false;
  asio::ssl::stream<Socket> tls_;
  Socket inner_;
  asio::steady_timer deadline_;
};

void Ending::add(const std::shared_ptr<TlsPipe>& pipe) {
  std::erase_if(pipes_, [](const auto& each) { return each.expired(); });
  pipes_.push_back(pipe);
  if (pipes_.size() <= most_) return;
  if (const auto longest = pipes_.front().lock()) longest->close();
  pipes_.pop_front();
}

int family_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? address.ss_family : AF_INET;
}

Result<std::pair<FileDescriptor, FileDescriptor>> make_pair_of_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return system_error("no sockets for a TLS connection", errno);
  std::pair both{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kPairBufferBytes, sizeof(kPairBufferBytes));
  return both;
}

}  // namespace

struct TlsFront::Impl {
  Impl(TlsOptions its_options, Context its_context)
      : options(std::move(its_options)), context(std::move(its_context)) {}

  const TlsOptions options;
  const std::shared_ptr<Census> census = std::make_shared<Census>();
  const std::shared_ptr<Ending> ending =
      std::make_shared<Ending>(std::max<std::size_t>(options.max_connections / 2, 1), options.goodbye_timeout);
  std::mutex mutex;
  Context context;  // with the mutex: of the next connections
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::thread thread;
};

Result<std::unique_ptr<TlsFront>> TlsFront::start(TlsOptions options) {
  auto context = make_context(options.certificate, options.key);
  if (!context) return context.error();
  auto impl = std::make_unique<Impl>(std::move(options), std::move(*context));
  impl->thread = std::thread([&io = impl->io] {
    pthread_setname_np(pthread_self(), "tls");
    io.run();
  });
  return std::unique_ptr<TlsFront>(new TlsFront(std::move(impl)));
}

TlsFront::TlsFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TlsFront::~TlsFront() {
  impl_->census->wait_until_sent(kFlushTime);
  impl_->io.stop();
  impl_->thread.join();
}

Result<FileDescriptor> TlsFront::wrap(FileDescriptor tcp) {
  auto ends = make_pair_of_sockets();
  if (!ends) return ends.error();
  auto place = impl_->census->enter(impl_->options.max_connections) ? std::make_unique<Place>(impl_->census) : nullptr;
  if (!place) return Error{ErrorCode::busy, fmt::format("{} TLS connections are open", impl_->options.max_connections)};
  Context context;
  {
    const std::lock_guard lock(impl_->mutex);
    context = impl_->context;
  }
  const int family = family_of(tcp.get());
  try {
    const auto pipe = std::make_shared<TlsPipe>(impl_->io, std::move(context), std::move(place), impl_->ending, family,
                                                std::move(tcp), std::move(ends->second));
    asio::post(impl_->io, [pipe, timeout = impl_->options.handshake_timeout] { pipe->start(timeout); });
  } catch (const asio::system_error& error) {  // OpenSSL has no memory, or epoll takes no more
    return Error{ErrorCode::io, fmt::format("no TLS connection can be made: {}", error.what())};
  }
  return std::move(ends->first);
}

Status TlsFront::reload(const std::string& certificate, const std::string& key) {
  auto context = make_context(certificate, key);
  if (!context) return context.error();
  const std::lock_guard lock(impl_->mutex);
  impl_->context = std::move(*context);
  return Ok{};
}

std::size_t TlsFront::num_connections() const { return impl_->census->num_open(); }

}  // namespace troupe::ipc::http
