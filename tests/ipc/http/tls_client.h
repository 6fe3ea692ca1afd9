// A client that speaks TLS, and certificates for a server, made by the openssl command.
#pragma once

#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "config/file_descriptor.h"

namespace troupe::test {

// Makes NAME.pem and NAME.key in the folder: a certificate for localhost and 127.0.0.1 that is signed by itself. False
// where the openssl command is missing.
inline bool make_certificate(const std::string& folder, const std::string& name) {
  const std::string key = folder + "/" + name + ".key";
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=" + name +
      " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " + key + " -out " + folder + "/" + name +
      ".pem >/dev/null 2>&1";
  if (std::system(command.c_str()) != 0) return false;
  return ::chmod(key.c_str(), 0600) == 0;
}

// Blocking. The certificate is not checked, but its name can be asked for.
class TlsClient {
 public:
  // Takes over a connected, blocking socket, and greets. `offers`: protocols of ALPN, each with its length before it.
  explicit TlsClient(FileDescriptor socket, int max_version = TLS1_3_VERSION, const std::string& offers = "")
      : socket_(std::move(socket)), context_(::SSL_CTX_new(::TLS_client_method()), ::SSL_CTX_free) {
    ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    ::SSL_CTX_set_max_proto_version(context_.get(), max_version);
    ::SSL_CTX_set_security_level(context_.get(), 0);
    ssl_ = {::SSL_new(context_.get()), ::SSL_free};
    if (!offers.empty())
      ::SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(offers.data()),
                            static_cast<unsigned>(offers.size()));
    ::SSL_set_fd(ssl_.get(), socket_.get());
    is_connected_ = ::SSL_connect(ssl_.get()) == 1;
  }

  bool is_connected() const { return is_connected_; }
  std::string version() const { return ::SSL_get_version(ssl_.get()); }
  // "CN" of the server's certificate.
  std::string server_name() const {
    const std::unique_ptr<X509, void (*)(X509*)> certificate(::SSL_get1_peer_certificate(ssl_.get()), ::X509_free);
    char name[64] = "";
    ::X509_NAME_get_text_by_NID(::X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof(name));
    return name;
  }
  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    ::SSL_get0_alpn_selected(ssl_.get(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  bool write(const std::string& text) {
    return ::SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size());
  }
  // What comes next; empty at the end.
  std::string read() {
    std::string text(65536, '\0');
    const int size = ::SSL_read(ssl_.get(), text.data(), static_cast<int>(text.size()));
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }
  std::string read_to_end() {
    std::string text;
    for (std::string part = read(); !part.empty(); part = read()) text += part;
    return text;
  }
  // Whether the server said that nothing more comes, or the connection just broke.
  bool was_told_of_end() const { return (::SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }
  void say_end() { ::SSL_shutdown(ssl_.get()); }
  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, ::SSL_free};
  bool is_connected_ = false;
};

}  // namespace troupe::test
