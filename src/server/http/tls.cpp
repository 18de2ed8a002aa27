#include "tessera/server/http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr std::string_view kCertificateFlag = "--ssl-certfile";
constexpr std::string_view kKeyFlag = "--ssl-keyfile";
constexpr std::string_view kClientFlag = "--ssl-ca-certs";
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// Returns OpenSSL's reason for this thread's last error. Clears all errors of this thread.
std::string last_fault() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown fault" : reason;
}

Result<std::vector<Certificate>> read_certificates(std::string_view flag, const std::string& path) {
  const std::string text = TRY(read_text_file(path, kMostFileBytes).with_context(flag));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string fault = last_fault();
  if (certificates.empty() && at_end)
    return invalid_argument(fmt::format("{}: {} has no certificate in PEM (-----BEGIN CERTIFICATE-----)", flag, path));
  if (!at_end)
    return invalid_argument(
        fmt::format("{}: certificate {} of {} cannot be read: {}", flag, certificates.size() + 1, path, fault));
  return certificates;
}

std::string date_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown date";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min);
}

Status check_dates(const X509* certificate, const std::string& path) {
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(end) < 0) {
    return invalid_argument(
        fmt::format("{}: the certificate in {} expired on {}", kCertificateFlag, path, date_of(end)));
  }
  if (X509_cmp_current_time(begin) > 0) {
    return invalid_argument(
        fmt::format("{}: the certificate in {} is not valid before {}", kCertificateFlag, path, date_of(begin)));
  }
  return ok_status();
}

// The password for an encrypted key, and whether OpenSSL asked for it.
struct Password {
  const std::string& text;
  bool asked = false;

  static int give(char* buffer, int size, int, void* self) {
    auto& password = *static_cast<Password*>(self);
    password.asked = true;
    const std::string& text = password.text;
    if (text.empty() || static_cast<int>(text.size()) > size) return -1;
    return static_cast<int>(text.copy(buffer, text.size()));
  }
};

Result<Key> read_key(const TlsOptions& options, const X509* certificate) {
  const std::string& path = options.key_file.empty() ? options.certificate_file : options.key_file;
  const std::string text = TRY(read_text_file(path, kMostFileBytes).with_context(kKeyFlag));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
  Password password{.text = options.key_password};
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &Password::give, &password), EVP_PKEY_free);
  ERR_clear_error();
  if (key == nullptr && password.asked) {
    return invalid_argument(
        options.key_password.empty()
            ? fmt::format("{}: {} is encrypted; --ssl-keyfile-password has its password", kKeyFlag, path)
            : fmt::format("{}: --ssl-keyfile-password does not decrypt {}", kKeyFlag, path));
  }
  if (key == nullptr)
    return invalid_argument(
        fmt::format("{}: {} has no private key in PEM (-----BEGIN PRIVATE KEY-----)", kKeyFlag, path));
  if (X509_check_private_key(certificate, key.get()) != 1) {
    ERR_clear_error();
    return invalid_argument(
        fmt::format("{}: {} is not the key of the certificate in {}", kKeyFlag, path, options.certificate_file));
  }
  return key;
}

// Chooses HTTP/1.1 among the protocols that the client offers by ALPN. If the client does not offer it, chooses none.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp, sizeof kHttp - 1, offered, offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

Status ask_clients(SSL_CTX* context, const TlsOptions& options) {
  for (const Certificate& authority : TRY(read_certificates(kClientFlag, options.client_ca_file))) {
    const bool added = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
                       SSL_CTX_add_client_CA(context, authority.get()) == 1;
    if (!added)
      return invalid_argument(
          fmt::format("{}: {} cannot be used: {}", kClientFlag, options.client_ca_file, last_fault()));
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return ok_status();
}

Result<std::shared_ptr<SSL_CTX>> make_context(const TlsOptions& options) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return internal_error("OpenSSL: " + last_fault());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Accepts a close without TLS's close alert, which many clients omit. The length of an HTTP message shows whether the
  // message is whole.
  SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  static constexpr unsigned char kSessions[] = "tessera";
  SSL_CTX_set_session_id_context(context.get(), kSessions, sizeof kSessions - 1);

  const std::vector<Certificate> chain = TRY(read_certificates(kCertificateFlag, options.certificate_file));
  TRY(check_dates(chain.front().get(), options.certificate_file));
  const Key key = TRY(read_key(options, chain.front().get()));
  bool taken = SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (std::size_t i = 1; taken && i < chain.size(); ++i)
    taken = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  taken = taken && SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  if (!taken)
    return invalid_argument(
        fmt::format("{}: {} cannot be used: {}", kCertificateFlag, options.certificate_file, last_fault()));
  if (!options.client_ca_file.empty()) TRY(ask_clients(context.get(), options));
  return context;
}

// The next functions implement a BIO over a socket. OpenSSL's own socket BIO would raise SIGPIPE if the client has
// gone, and SIGPIPE would end the process.
int socket_of(BIO* bio) { return *static_cast<const int*>(BIO_get_data(bio)); }

int send_to_socket(BIO* bio, const char* data, std::size_t size, std::size_t* taken) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(socket_of(bio), data, size, MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
  *taken = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  return sent > 0 ? 1 : 0;
}

int receive_from_socket(BIO* bio, char* data, std::size_t size, std::size_t* taken) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = ::recv(socket_of(bio), data, size, 0);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
  if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  *taken = received > 0 ? static_cast<std::size_t>(received) : 0;
  return received > 0 ? 1 : 0;
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Makes a BIO over a socket. Borrows `socket`, which holds the socket's file descriptor.
BIO* make_socket_bio(int& socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "socket");
    BIO_meth_set_write_ex(made, send_to_socket);
    BIO_meth_set_read_ex(made, receive_from_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::create(TlsOptions options) {
  std::unique_ptr<TlsContext> made(new TlsContext(std::move(options)));
  made->seen_ = made->stamps();
  made->current_ = TRY(make_context(made->options_));
  return made;
}

TlsContext::Stamps TlsContext::stamps() const {
  Stamps stamps{};
  const std::string* const paths[] = {&options_.certificate_file, &options_.key_file, &options_.client_ca_file};
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    struct stat file {};
    if (paths[i]->empty() || ::stat(paths[i]->c_str(), &file) != 0) continue;
    constexpr std::int64_t kNanoseconds = 1'000'000'000;
    stamps[i] = {static_cast<std::int64_t>(file.st_dev), static_cast<std::int64_t>(file.st_ino), file.st_size,
                 file.st_mtim.tv_sec * kNanoseconds + file.st_mtim.tv_nsec};
  }
  return stamps;
}

void TlsContext::refresh() {
  const Stamps now = stamps();
  if (now == seen_) return;
  seen_ = now;
  Result<std::shared_ptr<SSL_CTX>> made = make_context(options_);
  if (made.ok()) {
    current_ = *std::move(made);
    log_info("http", "the certificate was read again from {}", options_.certificate_file);
  } else {
    log_warn("http", "the new certificate cannot be used, so the old one stays in use: {}", made.status().message());
  }
}

TlsStream::TlsStream(std::shared_ptr<ssl_ctx_st> context, int socket)
    : context_(std::move(context)), socket_(socket), ssl_(SSL_new(context_.get()), SSL_free) {
  BIO* const bio = make_socket_bio(socket_);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_accept_state(ssl_.get());
}

// Returns the meaning of `result`, which an SSL function returned. Call it directly after that function, before errno
// and OpenSSL's errors change.
TlsStream::Io TlsStream::outcome(int result) {
  const int saved = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_NONE: return Io::kDone;
    case SSL_ERROR_WANT_READ: return Io::kWantsRead;
    case SSL_ERROR_WANT_WRITE: return Io::kWantsWrite;
    case SSL_ERROR_ZERO_RETURN: return Io::kEnd;
    case SSL_ERROR_SYSCALL: failure_ = saved == 0 ? "the connection ended" : std::string(strerror(saved)); break;
    default:
      got_plain_http_ = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
      failure_ = last_fault();
      break;
  }
  ERR_clear_error();
  return Io::kFailed;
}

TlsStream::Io TlsStream::handshake() {
  ERR_clear_error();
  return outcome(SSL_do_handshake(ssl_.get()));
}

TlsStream::Io TlsStream::read(char* data, std::size_t size, std::size_t& taken) {
  ERR_clear_error();
  return outcome(SSL_read_ex(ssl_.get(), data, size, &taken));
}

TlsStream::Io TlsStream::write(const char* data, std::size_t size, std::size_t& taken) {
  ERR_clear_error();
  return outcome(SSL_write_ex(ssl_.get(), data, size, &taken));
}

void TlsStream::end() {
  if (!failure_.empty() || !SSL_is_init_finished(ssl_.get())) return;
  ERR_clear_error();
  // Sends the close alert if the socket takes it, and does not wait for the client's alert.
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

bool TlsStream::has_pending() const { return SSL_pending(ssl_.get()) > 0; }

}  // namespace tessera
