// Certificates made for a test, and a client that speaks TLS. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {

using TestKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using TestCertificate = std::unique_ptr<X509, decltype(&X509_free)>;

inline TestKey make_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

// A name with its key and certificate. The certificate is signed with this key or with the key of an authority.
struct Identity {
  TestKey key = make_key();
  TestCertificate certificate{nullptr, X509_free};

  // The certificate is valid from `begin_s` to `end_s`, in seconds from now.
  explicit Identity(const std::string& name, const Identity* authority = nullptr, long begin_s = -60,
                    long end_s = 3600) {
    certificate.reset(X509_new());
    X509* const x = certificate.get();
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1 + static_cast<long>(std::hash<std::string>()(name) % 1'000'000));
    X509_gmtime_adj(X509_getm_notBefore(x), begin_s);
    X509_gmtime_adj(X509_getm_notAfter(x), end_s);
    X509_set_pubkey(x, key.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const Identity& signer = authority != nullptr ? *authority : *this;
    X509_set_issuer_name(x, X509_get_subject_name(signer.certificate.get()));
    if (authority == nullptr) {
      X509_EXTENSION* const is_authority = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "CA:TRUE");
      X509_add_ext(x, is_authority, -1);
      X509_EXTENSION_free(is_authority);
    }
    EXPECT_GT(X509_sign(x, signer.key.get(), EVP_sha256()), 0);
  }

  void write_certificate(const std::string& path) const {
    FILE* const file = std::fopen(path.c_str(), "w");
    PEM_write_X509(file, certificate.get());
    std::fclose(file);
  }
  void write_key(const std::string& path, const std::string& password = "") const {
    FILE* const file = std::fopen(path.c_str(), "w");
    const auto* const text = reinterpret_cast<const unsigned char*>(password.data());
    PEM_write_PrivateKey(file, key.get(), password.empty() ? nullptr : EVP_aes_256_cbc(), text,
                         static_cast<int>(password.size()), nullptr, nullptr);
    std::fclose(file);
  }
};

// A TLS connection on a blocking socket. It trusts every server, and tells whose certificate it got.
class TlsClient {
 public:
  explicit TlsClient(std::uint16_t port, const Identity* identity = nullptr, int version = 0)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), ssl_(nullptr, SSL_free) {
    if (version != 0) {
      SSL_CTX_set_min_proto_version(context_.get(), version);
      SSL_CTX_set_max_proto_version(context_.get(), version);
    }
    if (identity != nullptr) {
      SSL_CTX_use_certificate(context_.get(), identity->certificate.get());
      SSL_CTX_use_PrivateKey(context_.get(), identity->key.get());
    }
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_);
    connected_ = SSL_connect(ssl_.get()) == 1;
    ERR_clear_error();
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;
  ~TlsClient() { ::close(socket_); }

  bool connected() const { return connected_; }
  // Returns the name of the server's certificate.
  std::string server_name() const {
    const TestCertificate shown(SSL_get1_peer_certificate(ssl_.get()), X509_free);
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName, name, sizeof name);
    return name;
  }
  bool send(std::string_view data) {
    return SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size())) == static_cast<int>(data.size());
  }
  // Reads up to and including the text `end`, or to the connection's end.
  std::string read_through(std::string_view end) {
    std::string all;
    char byte = 0;
    while ((end.empty() || !all.ends_with(end)) && SSL_read(ssl_.get(), &byte, 1) == 1) all += byte;
    return all;
  }
  // Returns whether the server has announced that no more bytes follow.
  bool was_ended() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  int socket_ = -1;
  bool connected_ = false;
};

}  // namespace tessera::testing
