// Frees libcurl's handles automatically, and returns the parts of a URL. This header includes libcurl's headers, so
// only source files may include it.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

namespace tessera {

struct CurlUrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct CurlHandleFree {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct CurlListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlUrl = std::unique_ptr<CURLU, CurlUrlFree>;
using CurlHandle = std::unique_ptr<CURL, CurlHandleFree>;
using CurlList = std::unique_ptr<curl_slist, CurlListFree>;

// Parses a URL. Returns null if the text is not a URL.
inline CurlUrl parse_url(const std::string& text) {
  CurlUrl url(curl_url());
  if (url != nullptr && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) url.reset();
  return url;
}

// Returns a part of the URL; "" if the URL does not have it. `flags` are libcurl's, such as CURLU_DEFAULT_PORT.
inline std::string part_of(const CurlUrl& url, CURLUPart part, unsigned flags = 0) {
  char* value = nullptr;
  if (url == nullptr || curl_url_get(url.get(), part, &value, flags) != CURLUE_OK) return {};
  std::string text(value);
  curl_free(value);
  return text;
}

}  // namespace tessera
