#include "tessera/model/hub/hub_digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace tessera {
namespace {

// Starts a digest. Fails if OpenSSL is configured to refuse the algorithm.
Status start(EVP_MD_CTX* context, const EVP_MD* algorithm) {
  if (context != nullptr && EVP_DigestInit_ex(context, algorithm, nullptr) == 1) return ok_status();
  return unimplemented(fmt::format("OpenSSL offers no {}", EVP_MD_get0_name(algorithm)));
}

}  // namespace

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Result<Digest> Digest::sha256() {
  Digest digest;
  digest.context_.reset(EVP_MD_CTX_new());
  TRY(start(digest.context_.get(), EVP_sha256()));
  return digest;
}

Result<Digest> Digest::git_blob(std::int64_t size) {
  Digest digest;
  digest.context_.reset(EVP_MD_CTX_new());
  TRY(start(digest.context_.get(), EVP_sha1()));
  const std::string header = fmt::format("blob {}", size);
  digest.add({header.c_str(), header.size() + 1});  // git hashes the terminating zero too
  return digest;
}

void Digest::add(std::string_view bytes) {
  good_ = EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1 && good_;
}

Result<std::string> Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  good_ = EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1 && good_;
  if (!good_) return internal_error("OpenSSL cannot compute a digest");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace tessera
