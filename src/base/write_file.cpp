#include "tessera/base/write_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera {

Status write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return not_found(fmt::format("{}: {}", path, std::strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return data_loss(fmt::format("{}: {}", path, std::strerror(errno)));
  return ok_status();
}

}  // namespace tessera
