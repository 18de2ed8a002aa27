// Computes the digests that the hub uses to name file contents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

struct evp_md_ctx_st;  // declared by OpenSSL

namespace tessera {

class Digest {
 public:
  static Result<Digest> sha256();
  // Starts a SHA-1 of a git blob of `size` bytes.
  static Result<Digest> git_blob(std::int64_t size);

  void add(std::string_view bytes);
  // Returns lower-case hexadecimal digits. May be called only once.
  Result<std::string> finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  Digest() = default;
  std::unique_ptr<evp_md_ctx_st, Free> context_;
  bool good_ = true;
};

}  // namespace tessera
