#include "tessera/server/page.h"

#include <fmt/format.h>

#include <random>

namespace tessera {
namespace {

constexpr unsigned char kPage[] = {
#include "page_bytes.inc"
};

// The placeholder in page.html for the nonce of its style and script.
constexpr std::string_view kNonce = "{{nonce}}";

std::string make_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

HttpResponse page_response() {
  const std::string nonce = make_nonce();
  std::string html(reinterpret_cast<const char*>(kPage), sizeof(kPage));
  for (std::size_t at = html.find(kNonce); at != std::string::npos; at = html.find(kNonce, at)) {
    html.replace(at, kNonce.size(), nonce);
  }
  const std::string policy = fmt::format(
      "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; img-src data:; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      nonce);
  return {.content_type = "text/html; charset=utf-8",
          .body = std::move(html),
          .headers = {{"Content-Security-Policy", policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-store"}}};
}

}  // namespace tessera
