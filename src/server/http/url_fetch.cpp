#include "tessera/server/http/url_fetch.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/model/hub/curl_url.h"
#include "tessera/model/hub/hub_http.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the scheme and the host of a URL ("https://host") for messages. Error: a URL that may not be fetched.
Result<std::string> site_of(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    return invalid_argument(fmt::format("\"{}\" {}; accepted: http://… or https://…", clip_text(text), why));
  };
  const CurlUrl url = parse_url(text);
  if (url == nullptr) return wrong("is no URL");
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong("has a scheme that is not supported");
  if (!part_of(url, CURLUPART_USER).empty() || !part_of(url, CURLUPART_PASSWORD).empty())
    return wrong("has a user name or password");
  return fmt::format("{}://{}", scheme, part_of(url, CURLUPART_HOST));
}

// The state of one transfer, for libcurl's callbacks.
struct Transfer {
  const UrlFetchOptions* options = nullptr;
  std::string body{};
  bool refused = false;   // an address was refused
  bool too_much = false;  // the body was too large
};

// Opens the socket of a connection. libcurl opens sockets only by this function, so every address is checked.
curl_socket_t open_checked(void* user, curlsocktype purpose, curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (purpose != CURLSOCKTYPE_IPCXN || !transfer.options->may_connect(address->addr)) {
    transfer.refused = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (transfer.body.size() + size > static_cast<std::size_t>(transfer.options->most_bytes)) {
    transfer.too_much = true;
    return CURL_WRITEFUNC_ERROR;
  }
  transfer.body.append(data, size);
  return size;
}

CURLcode perform(CURL* curl, const std::string& url, const std::string& ca_file, double seconds, Transfer& transfer) {
  const long left_ms = std::max(1L, static_cast<long>(1e3 * seconds));
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // Ignores the environment's proxies, because a proxy would resolve the name itself.
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tessera");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left_ms);
  curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(transfer.options->most_bytes));
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
  if (!ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file.c_str());
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_checked);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  return curl_easy_perform(curl);
}

Status failure(CURLcode code, const std::string& site, const Transfer& transfer, const UrlFetchOptions& options) {
  if (transfer.too_much || code == CURLE_FILESIZE_EXCEEDED)
    return invalid_argument(
        fmt::format("the file at {} has more than {} bytes, the most that is accepted", site, options.most_bytes));
  if (code == CURLE_OPERATION_TIMEDOUT)
    return invalid_argument(fmt::format("{} did not send the file within {} s", site, options.timeout_s));
  if (transfer.refused)
    return invalid_argument(
        fmt::format("{} is not a public host; accepted: addresses that are not "
                    "private, link-local, loopback, multicast, reserved or this machine's own",
                    site));
  return invalid_argument(fmt::format("fetching a file from {} failed: {}", site, curl_easy_strerror(code)));
}

}  // namespace

struct UrlFetcher::Impl {
  UrlFetchOptions options;
  std::string ca_file;
  std::atomic<int> under_way{0};

  // A fetch's slot among the simultaneous fetches. Its destructor frees the slot.
  struct Place {
    explicit Place(std::atomic<int>& counter) : all(counter), number(counter.fetch_add(1)) {}
    ~Place() { all.fetch_sub(1); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    std::atomic<int>& all;
    int number;
  };

  Result<std::string> get(std::string url) {
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeout_s));
    const CurlHandle curl(curl_easy_init());
    if (curl == nullptr) return internal_error("libcurl cannot be started");
    std::string site = TRY(site_of(url));
    for (int redirects = 0; redirects <= options.most_redirects; ++redirects) {
      Transfer transfer{.options = &options};
      const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
      const CURLcode code = perform(curl.get(), url, ca_file, left_s, transfer);
      if (code != CURLE_OK) return failure(code, site, transfer, options);
      long status = 0;
      curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
      if (status >= 200 && status < 300) return std::move(transfer.body);
      const char* next = nullptr;
      curl_easy_getinfo(curl.get(), CURLINFO_REDIRECT_URL, &next);
      if (next == nullptr) return invalid_argument(fmt::format("{} answers with status {}", site, status));
      url = next;
      std::string next_site = TRY(site_of(url).with_context(fmt::format("{} redirects to", site)));
      if (site.starts_with("https:") && !next_site.starts_with("https:"))
        return invalid_argument(fmt::format("{} redirects to {}, which is not encrypted", site, next_site));
      site = std::move(next_site);
    }
    return invalid_argument(
        fmt::format("{} redirects once more; accepted: up to {} redirects", site, options.most_redirects));
  }
};

UrlFetcher::UrlFetcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UrlFetcher::UrlFetcher(UrlFetcher&&) noexcept = default;
UrlFetcher& UrlFetcher::operator=(UrlFetcher&&) noexcept = default;
UrlFetcher::~UrlFetcher() = default;

Result<UrlFetcher> UrlFetcher::create(UrlFetchOptions options) {
  if (const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    return internal_error(fmt::format("libcurl cannot be started: {}", curl_easy_strerror(code)));
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->ca_file = system_ca_file();
  return UrlFetcher(std::move(impl));
}

Result<std::string> UrlFetcher::get(const std::string& url) const {
  const Impl::Place place(impl_->under_way);
  if (place.number >= impl_->options.most_at_once) {
    return resource_exhausted(
        fmt::format("{} URLs are being fetched already, the most at a time", impl_->options.most_at_once));
  }
  return impl_->get(url);
}

}  // namespace tessera
