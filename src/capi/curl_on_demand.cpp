// Loads the system's libcurl into libtessera.so at its first use. libtessera.so is not linked with libcurl, because
// libcurl and its dependencies would make up a sixth of the Python wheel. Only downloads, images named by URL and
// `bench serve` use libcurl. The functions here have the declarations of libcurl's header, and are hidden symbols of
// libtessera.so. If the system has no libcurl, every call fails, and curl_easy_strerror() says why.
//
// Threads: libcurl's own rules apply.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <cstdarg>

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

namespace {

constexpr const char* kMissing =
    "this system has no libcurl.so.4, which downloads need; install it (Debian and Ubuntu: libcurl4, Fedora: libcurl)";

// RTLD_DEEPBIND makes libcurl's libssl use the system's libcrypto, even if the process has already loaded another
// libcrypto with the same symbols. The program in the Python wheel has loaded such a libcrypto. Builds with a sanitizer
// do not set this flag, because the sanitizer's run-time library would end the program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

void* library() {
  static void* const opened = [] {
    void* first = dlopen("libcurl.so.4", kFlags);
    return first != nullptr ? first : dlopen("libcurl-gnutls.so.4", kFlags);
  }();
  return opened;
}

// Returns libcurl's function `name`, which has the type F. Returns null if there is no such function.
template <class F>
F* find(F* /*like*/, const char* name) {
  return library() == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library(), name));
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): types and names cannot stand in parentheses
// Defines RESULT NAME(PARAMETERS), which calls libcurl's function with ARGUMENTS. If the system has no libcurl, the
// function returns OTHERWISE.
#define ON_DEMAND(RESULT, NAME, PARAMETERS, ARGUMENTS, OTHERWISE)               \
  RESULT NAME PARAMETERS {                                                      \
    static auto* const found = find(&NAME, #NAME);                              \
    return found == nullptr ? static_cast<RESULT>(OTHERWISE) : found ARGUMENTS; \
  }
#define ON_DEMAND_VOID(NAME, PARAMETERS, ARGUMENTS) \
  void NAME PARAMETERS {                            \
    static auto* const found = find(&NAME, #NAME);  \
    if (found != nullptr) found ARGUMENTS;          \
  }
// Defines a function that takes one value after OPTION. The value is a pointer, a long or a curl_off_t. All three types
// are passed in the same register.
#define ON_DEMAND_VALUE(RESULT, NAME, HANDLE, handle, OPTION, option, OTHERWISE)        \
  RESULT NAME(HANDLE* handle, OPTION option, ...) {                                     \
    static_assert(sizeof(void*) == sizeof(long) && sizeof(long) == sizeof(curl_off_t)); \
    static auto* const found = find(&NAME, #NAME);                                      \
    std::va_list values;                                                                \
    va_start(values, option);                                                           \
    void* const value = va_arg(values, void*);                                          \
    va_end(values);                                                                     \
    return found == nullptr ? (OTHERWISE) : found(handle, option, value);               \
  }

// NOLINTEND(bugprone-macro-parentheses)

// Parameters have the names of curl's headers.
extern "C" {

ON_DEMAND(CURLcode, curl_global_init, (long flags), (flags), CURLE_FAILED_INIT)
ON_DEMAND_VOID(curl_free, (void* p), (p))

ON_DEMAND(CURL*, curl_easy_init, (), (), nullptr)
ON_DEMAND_VALUE(CURLcode, curl_easy_setopt, CURL, curl, CURLoption, option, CURLE_FAILED_INIT)
ON_DEMAND_VALUE(CURLcode, curl_easy_getinfo, CURL, curl, CURLINFO, info, CURLE_FAILED_INIT)
ON_DEMAND(CURLcode, curl_easy_perform, (CURL * curl), (curl), CURLE_FAILED_INIT)
ON_DEMAND_VOID(curl_easy_reset, (CURL * curl), (curl))
ON_DEMAND_VOID(curl_easy_cleanup, (CURL * curl), (curl))
ON_DEMAND(const char*, curl_easy_strerror, (CURLcode code), (code), kMissing)

ON_DEMAND(CURLM*, curl_multi_init, (), (), nullptr)
ON_DEMAND_VALUE(CURLMcode, curl_multi_setopt, CURLM, multi_handle, CURLMoption, option, CURLM_INTERNAL_ERROR)
ON_DEMAND(CURLMcode, curl_multi_add_handle, (CURLM * multi_handle, CURL* curl_handle), (multi_handle, curl_handle),
          CURLM_INTERNAL_ERROR)
ON_DEMAND(CURLMcode, curl_multi_remove_handle, (CURLM * multi_handle, CURL* curl_handle), (multi_handle, curl_handle),
          CURLM_INTERNAL_ERROR)
ON_DEMAND(CURLMcode, curl_multi_assign, (CURLM * multi_handle, curl_socket_t sockfd, void* sockp),
          (multi_handle, sockfd, sockp), CURLM_INTERNAL_ERROR)
ON_DEMAND(CURLMcode, curl_multi_socket_action,
          (CURLM * multi_handle, curl_socket_t s, int ev_bitmask, int* running_handles),
          (multi_handle, s, ev_bitmask, running_handles), CURLM_INTERNAL_ERROR)
ON_DEMAND(CURLMsg*, curl_multi_info_read, (CURLM * multi_handle, int* msgs_in_queue), (multi_handle, msgs_in_queue),
          nullptr)
ON_DEMAND(CURLMcode, curl_multi_cleanup, (CURLM * multi_handle), (multi_handle), CURLM_INTERNAL_ERROR)

ON_DEMAND(curl_slist*, curl_slist_append, (curl_slist * list, const char* data), (list, data), nullptr)
ON_DEMAND_VOID(curl_slist_free_all, (curl_slist * list), (list))

ON_DEMAND(CURLU*, curl_url, (), (), nullptr)
ON_DEMAND(CURLUcode, curl_url_set, (CURLU * handle, CURLUPart what, const char* part, unsigned int flags),
          (handle, what, part, flags), CURLUE_UNKNOWN_PART)
ON_DEMAND(CURLUcode, curl_url_get, (CURLU * handle, CURLUPart what, char** part, unsigned int flags),
          (handle, what, part, flags), CURLUE_UNKNOWN_PART)
ON_DEMAND_VOID(curl_url_cleanup, (CURLU * handle), (handle))

}  // extern "C"
