#include "tessera/model/hub/hub_http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/model/hub/curl_url.h"

namespace tessera {
namespace {

constexpr int kMaxRedirects = 10;
constexpr long kConnectTimeoutS = 30;
constexpr long kStalledAfterS = 60;  // a transfer fails after this many seconds without a byte

// Returns the origin of a URL, such as "https://host:443". Returns an error if the URL must not be fetched.
Result<std::string> origin_of(const std::string& text) {
  const CurlUrl url = parse_url(text);
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https")
    return invalid_argument(fmt::format("\"{}\" is no address; accepted is http://… or https://…", clip_text(text)));
  std::string host = part_of(url, CURLUPART_HOST);
  std::transform(host.begin(), host.end(), host.begin(), [](unsigned char c) { return std::tolower(c); });
  return fmt::format("{}://{}:{}", scheme, host, part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

bool is_https(const std::string& origin) { return origin.starts_with("https:"); }

// Returns whether the transfer failed because of certificates, so that a retry cannot help.
bool is_about_trust(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM;
}

// The state of one transfer, for libcurl's callbacks.
struct Transfer {
  CURL* curl = nullptr;
  const HttpSink* sink = nullptr;
  HttpReply reply{};
  bool begun = false;
  Status failure{};

  // Returns whether the body is passed to the sink. The body of a refusal or a redirect is discarded.
  bool wanted() const { return reply.status >= 200 && reply.status < 300; }
  bool begin() {
    if (!begun && wanted()) {
      begun = true;
      failure = sink->begin(reply);
    }
    return failure.ok();
  }
};

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) {  // a new response begins; drops the headers of an interim response
    long status = 0;
    curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
    transfer.reply = {.status = static_cast<int>(status)};
    return size;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = std::min(line.find_first_not_of(kBlank, colon + 1), size);
  const std::size_t end = line.find_last_not_of(kBlank) + 1;
  transfer.reply.headers[name] = std::string(line.substr(begin, std::max(begin, end) - begin));
  return size;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (!transfer.wanted()) return size;
  if (!transfer.begin()) return CURL_WRITEFUNC_ERROR;
  transfer.failure = transfer.sink->write({data, size});
  return transfer.failure.ok() ? size : CURL_WRITEFUNC_ERROR;
}

struct Target {
  const std::string& url;
  std::int64_t offset;
  bool gets_token;
};

// Runs the transfer. If it fails, `reason` receives a description of the failure.
CURLcode perform(Transfer& transfer, const HubHttpOptions& options, const Target& target, std::string& reason) {
  CURL* curl = transfer.curl;
  std::array<char, CURL_ERROR_SIZE> error{};
  CurlList headers;
  if (target.gets_token && !options.token.empty())
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + options.token).c_str()));
  const std::string range = fmt::format("{}-", target.offset);

  curl_easy_reset(curl);  // keeps the connections open
  curl_easy_setopt(curl, CURLOPT_URL, target.url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  if (target.offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tessera");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  if (!options.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_file.c_str());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutS);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kStalledAfterS);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error.data());
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, nullptr);
  reason = error[0] != '\0' ? error.data() : curl_easy_strerror(code);
  return code;
}

}  // namespace

struct HttpClient::Handle {
  struct Free {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };
  std::unique_ptr<CURL, Free> curl{curl_easy_init()};
};

HttpClient::HttpClient(HubHttpOptions options, std::string origin, std::unique_ptr<Handle> handle)
    : options_(std::move(options)), origin_(std::move(origin)), handle_(std::move(handle)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::create(HubHttpOptions options) {
  auto handle = std::make_unique<Handle>();
  if (handle->curl == nullptr)
    return internal_error(fmt::format("libcurl cannot be started: {}", curl_easy_strerror(CURLE_FAILED_INIT)));
  std::string origin = TRY(origin_of(options.endpoint));
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(options.token.begin(), options.token.end(), printable))
    return invalid_argument(
        "the hub's token (HF_TOKEN) has a character that no token may have, such as a blank, a line end or an umlaut");
  if (options.ca_file.empty()) options.ca_file = system_ca_file();
  return HttpClient(std::move(options), std::move(origin), std::move(handle));
}

Result<HttpReply> HttpClient::get(const std::string& url, std::int64_t offset, const HttpSink& sink) {
  CURL* curl = handle_->curl.get();
  std::string target = url;
  std::string origin = TRY(origin_of(target));
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    Transfer transfer{.curl = curl, .sink = &sink};
    std::string reason;
    const CURLcode code = perform(transfer, options_, {target, offset, origin == origin_}, reason);
    TRY(transfer.failure);
    if (is_about_trust(code)) return not_found(fmt::format("{} cannot be trusted: {}", origin, reason));
    if (code != CURLE_OK) {
      transfer.reply.broken = reason;
      return std::move(transfer.reply);
    }
    const char* next = nullptr;
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &next);
    if (next == nullptr) {
      transfer.begin();
      TRY(transfer.failure);
      return std::move(transfer.reply);
    }
    target = next;
    std::string next_origin = TRY(origin_of(target).with_context(fmt::format("{} redirects to", origin)));
    if (is_https(origin) && !is_https(next_origin))
      return not_found(fmt::format("{} redirects to {}, which is not encrypted", origin, next_origin));
    origin = std::move(next_origin);
  }
  return not_found(fmt::format("{} leads to more than {} redirects", url, kMaxRedirects));
}

const std::string* HttpReply::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? nullptr : &it->second;
}

bool HttpReply::is_temporary() const {
  return !broken.empty() || status == 408 || status == 429 || (status >= 500 && status != 501);
}

// Searches for the certificates itself, because the packaged program's libcurl looks only where Debian keeps
// certificates. The program also runs on other distributions.
std::string system_ca_file() {
  static constexpr std::array<const char*, 4> kPlaces = {"/etc/ssl/certs/ca-certificates.crt",
                                                         "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                                         "/etc/ssl/cert.pem"};
  std::error_code error;
  for (const char* place : kPlaces) {
    if (std::filesystem::exists(place, error)) return place;
  }
  return "";
}

std::string url_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      escaped += c;
    } else {
      escaped += fmt::format("%{:02X}", byte);
    }
  }
  return escaped;
}

}  // namespace tessera
