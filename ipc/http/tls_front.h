// TLS for connections over TCP, in front of the server: each encrypted connection becomes one end of a socket pair,
// which carries what was decrypted, so that what speaks HTTP knows nothing of TLS.
//
// It runs on a thread of its own: a handshake costs a millisecond of computing, and a flood of them must not delay the
// answers of others. TLS 1.2 and 1.3 (OpenSSL).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "config/file_descriptor.h"
#include "config/result.h"

namespace troupe::ipc::http {

// What a TLS connection needs beside one without: OpenSSL's state and two buffers here, four of the pair's sockets.
inline constexpr std::size_t kTlsConnectionBytes = 384u << 10;

struct TlsOptions {
  std::string certificate{};  // a PEM file: the server's certificate, then those that lead to a known authority
  std::string key{};  // a PEM file: its private key, without passphrase. Other users must not be able to read it
  std::chrono::milliseconds handshake_timeout{5000};  // from accept on
  std::chrono::milliseconds goodbye_timeout{5000};    // for the client to close, after the last byte
  // At once. Half of them may be ending: beyond that the one that has been ending longest is closed.
  std::size_t max_connections = 512;
};

// Thread-safe.
class TlsFront {
 public:
  // Errors: bad_config if the files are not there, are none or do not belong together, or the key has a passphrase;
  // permission if the key's file is not ours or root's, or others can read it.
  static Result<std::unique_ptr<TlsFront>> start(TlsOptions options);
  // Waits up to 2 s until what was written to ended connections is sent; closes the others.
  ~TlsFront();
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;

  // Takes a connected, non-blocking TCP socket. Returns the other end of the pair, non-blocking: it reads as ended when
  // the client has closed, did not finish the handshake in time, or sent what is not TLS; plain HTTP is answered in the
  // clear, with 400 and what to do. Closing it, or its sending side, ends the connection after what was written, or at
  // once in the handshake; what the client sends then is dropped, for goodbye_timeout at most. Errors: busy above
  // max_connections; io.
  [[nodiscard]] Result<FileDescriptor> wrap(FileDescriptor tcp);

  // Reads the files again, for the next connections. Errors as of start(): the old certificate stays in use.
  [[nodiscard]] Status reload(const std::string& certificate, const std::string& key);

  [[nodiscard]] std::size_t num_connections() const;

 private:
  struct Impl;
  explicit TlsFront(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::ipc::http
