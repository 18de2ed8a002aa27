#include "tessera/base/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/lfs_pointer.h"

namespace tessera {
namespace {

void print_string(const std::string& text, std::string& out) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print(const Json& value, int indent, int level, std::string& out) {
  auto newline = [&](int at) {
    if (indent >= 0) out += '\n' + std::string(static_cast<std::size_t>(indent * at), ' ');
  };
  if (value.is_array() || value.is_object()) {
    const bool array = value.is_array();
    const std::size_t count = array ? value.as_array().size() : value.as_object().size();
    out += array ? '[' : '{';
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += indent >= 0 ? "," : ", ";
      newline(level + 1);
      if (array) {
        print(value.as_array()[i], indent, level + 1, out);
      } else {
        print_string(value.as_object()[i].first, out);
        out += ": ";
        print(value.as_object()[i].second, indent, level + 1, out);
      }
    }
    if (count > 0) newline(level);
    out += array ? ']' : '}';
  } else if (value.is_string()) {
    print_string(value.as_string(), out);
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_number()) {
    // JSON has no NaN or infinity. Both are written as null, as in other printers.
    out += std::isfinite(value.as_double()) ? nlohmann::json(value.as_double()).dump() : "null";
  } else {
    out += "null";
  }
}

}  // namespace

Result<Json> Json::read_file(const std::string& path) {
  const std::string text = TRY(read_text_file(path));
  if (is_lfs_pointer(text)) return lfs_pointer_error(path);
  return parse(text, path);
}

std::string_view Json::type_name() const {
  constexpr std::string_view kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

double Json::as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<double>(value_); }

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& members = as_object();
  auto it = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.first == key; });
  return it == members.end() ? nullptr : &it->second;
}

Json& Json::set(std::string key, Json value) {
  Object& members = *std::get<Box<Object>>(value_);
  for (Member& m : members) {
    if (m.first == key) {
      m.second = std::move(value);
      return *this;
    }
  }
  members.emplace_back(std::move(key), std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  std::string out;
  print(*this, indent, 0, out);
  return out;
}

Result<std::string> read_text_file(const std::string& path, std::size_t most) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("cannot open " + path + ": " + std::strerror(errno));
  std::string content;
  for (std::size_t step = 1 << 16; file && content.size() <= most; step *= 2) {
    const std::size_t before = content.size();
    content.resize(before + step);
    file.read(content.data() + before, static_cast<std::streamsize>(step));
    content.resize(before + static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) return data_loss("cannot read " + path + ": " + std::strerror(errno));
  if (content.size() > most) return invalid_argument(path + " has more than " + std::to_string(most) + " bytes");
  return content;
}

}  // namespace tessera
