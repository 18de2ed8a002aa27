// Quantises a golden checkpoint like a tool that writes files: in double precision if that is exact, one value after
// the other, and in the layouts of published checkpoints. It shares no code with the engine's quantisation.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/base/float16.h"
#include "tessera/base/float8.h"
#include "tessera/base/json.h"
#include "tessera/base/write_file.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::testing {

struct OfflineMatrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> numbers;

  double greatest(std::int64_t row, std::int64_t num_rows, std::int64_t col, std::int64_t num_cols) const {
    double greatest = 0;
    for (std::int64_t r = row; r < std::min(row + num_rows, rows); ++r)
      for (std::int64_t c = col; c < std::min(col + num_cols, cols); ++c)
        greatest = std::max(greatest, std::abs(double{at(r, c)}));
    return greatest;
  }
  float at(std::int64_t row, std::int64_t col) const { return numbers[static_cast<std::size_t>(row * cols + col)]; }
};

inline OfflineMatrix read_matrix(const StoredTensor& stored) {
  OfflineMatrix matrix{.rows = stored.shape[0], .cols = stored.shape[1], .numbers = {}};
  const bool wide = stored.dtype == StoredDtype::kF32;
  for (std::size_t at = 0; at < stored.data.size(); at += wide ? 4 : 2) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, stored.data.data() + at, wide ? 4 : 2);
    matrix.numbers.push_back(wide ? std::bit_cast<float>(bits) : to_float(BFloat16{static_cast<std::uint16_t>(bits)}));
  }
  return matrix;
}

// Returns a quotient rounded to float32.
inline float quotient(double a, double b) { return static_cast<float>(a / b); }
inline float one_for_zero(float scale) { return scale > 0 ? scale : 1.0F; }

// Returns the code of the format's magnitude that is nearest to the number; of two equally near codes, the even one.
// `sign` is added to the code of a negative number.
inline std::uint8_t nearest_of(const std::vector<double>& magnitudes, double number, std::uint8_t sign) {
  std::size_t best = 0;
  for (std::size_t code = 1; code < magnitudes.size(); ++code) {
    const double gain = std::abs(magnitudes[best] - std::abs(number)) - std::abs(magnitudes[code] - std::abs(number));
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(number) ? sign : 0u));
}
inline std::uint8_t e4m3_of(double number) {
  static const std::vector<double> kMagnitudes = [] {
    std::vector<double> magnitudes;
    for (std::uint32_t code = 0; code < 0x7f; ++code) magnitudes.push_back(double{number_of_e4m3(code)});
    return magnitudes;
  }();
  return nearest_of(kMagnitudes, number, 0x80);
}

// A checkpoint that is being made. Owns the bytes of new tensors, and keeps the golden's checkpoint open.
class OfflineCheckpoint {
 public:
  // `modules` has the linears that are quantised to `format`, each with the number of columns in one group of int4.
  OfflineCheckpoint(const std::string& golden, const std::string& format,
                    const std::map<std::string, std::int64_t>& modules)
      : checkpoint_(*Checkpoint::open(golden)) {
    for (const std::string_view name : checkpoint_.names()) {
      const std::string module(name.substr(0, name.rfind('.')));
      if (!name.ends_with(".weight") || !modules.contains(module)) {
        tensors_.push_back(*checkpoint_.find(name));
        continue;
      }
      const OfflineMatrix matrix = read_matrix(*checkpoint_.find(name));
      if (format == "fp8") add_fp8(module, matrix);
      if (format == "int8") add_int8(module, matrix);
      if (format == "int4") add_int4(module, matrix, modules.at(module));
      if (format == "nvfp4") add_nvfp4(module, matrix);
    }
    config_ = *Json::read_file(golden + "/config.json");
    config_.set("quantization_config", settings_of(format, modules));
  }

  // Writes config.json and the tensors to the folder, which must exist.
  void write(const std::string& folder) const {
    ASSERT_TRUE(replace_file(folder + "/config.json", config_.dump(2)).ok());
    const Status written = write_safetensors(folder + "/model.safetensors", tensors_, {{"format", "pt"}});
    ASSERT_TRUE(written.ok()) << written.to_string();
  }

 private:
  template <class T>
  void add(const std::string& name, StoredDtype dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    owned_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({.name = name, .dtype = dtype, .shape = std::move(shape), .data = owned_.back()});
  }

  void add_fp8(const std::string& module, const OfflineMatrix& m) {
    constexpr std::int64_t kBlock = 128;
    const std::int64_t down = (m.rows + kBlock - 1) / kBlock;
    const std::int64_t across = (m.cols + kBlock - 1) / kBlock;
    std::vector<float> scales;
    for (std::int64_t i = 0; i < down * across; ++i)
      scales.push_back(
          one_for_zero(quotient(m.greatest(i / across * kBlock, kBlock, i % across * kBlock, kBlock), 448)));
    std::vector<std::uint8_t> values;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c)
        values.push_back(
            e4m3_of(double{quotient(m.at(r, c), scales[static_cast<std::size_t>(r / kBlock * across + c / kBlock)])}));
    add(module + ".weight", StoredDtype::kF8E4M3, {m.rows, m.cols}, values);
    add(module + ".weight_scale_inv", StoredDtype::kF32, {down, across}, scales);
  }

  void add_int8(const std::string& module, const OfflineMatrix& m) {
    std::vector<float> scales;
    std::vector<std::int8_t> values;
    for (std::int64_t r = 0; r < m.rows; ++r) {
      scales.push_back(one_for_zero(quotient(m.greatest(r, 1, 0, m.cols), 127)));
      for (std::int64_t c = 0; c < m.cols; ++c)
        values.push_back(static_cast<std::int8_t>(std::nearbyint(quotient(m.at(r, c), scales.back()))));
    }
    add(module + ".weight", StoredDtype::kI8, {m.rows, m.cols}, values);
    add(module + ".weight_scale", StoredDtype::kF32, {m.rows, 1}, scales);
  }

  void add_int4(const std::string& module, const OfflineMatrix& m, std::int64_t group) {
    std::vector<float> scales;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(m.rows * m.cols / 8));
    for (std::int64_t r = 0; r < m.rows; ++r) {
      for (std::int64_t c = 0; c < m.cols; ++c) {
        if (c % group == 0) scales.push_back(one_for_zero(quotient(m.greatest(r, 1, c, group), 7)));
        const double rounded = std::clamp(std::nearbyint(double{quotient(m.at(r, c), scales.back())}) + 8, 0.0, 15.0);
        const std::int64_t at = r * m.cols + c;
        words[static_cast<std::size_t>(at / 8)] |= static_cast<std::uint32_t>(rounded) << (4 * (at % 8));
      }
    }
    add(module + ".weight_packed", StoredDtype::kI32, {m.rows, m.cols / 8}, words);
    add(module + ".weight_scale", StoredDtype::kF32, {m.rows, m.cols / group}, scales);
    add(module + ".weight_shape", StoredDtype::kI64, {2}, std::vector<std::int64_t>{m.rows, m.cols});
  }

  void add_nvfp4(const std::string& module, const OfflineMatrix& m) {
    constexpr std::int64_t kGroup = 16;
    const std::vector<double> magnitudes{0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const float factor = one_for_zero(quotient(m.greatest(0, m.rows, 0, m.cols), 448 * 6));
    std::vector<std::uint8_t> scales;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(m.rows * m.cols / 2));
    for (std::int64_t r = 0; r < m.rows; ++r) {
      for (std::int64_t c = 0; c < m.cols; ++c) {
        if (c % kGroup == 0)
          scales.push_back(
              std::max<std::uint8_t>(1, e4m3_of(double{quotient(quotient(m.greatest(r, 1, c, kGroup), 6), factor)})));
        const auto divisor = static_cast<float>(double{number_of_e4m3(scales.back())} * double{factor});
        const std::int64_t at = r * m.cols + c;
        bytes[static_cast<std::size_t>(at / 2)] |= static_cast<std::uint8_t>(
            nearest_of(magnitudes, double{quotient(m.at(r, c), divisor)}, 0x8) << (4 * (at % 2)));
      }
    }
    add(module + ".weight", StoredDtype::kU8, {m.rows, m.cols / 2}, bytes);
    add(module + ".weight_scale", StoredDtype::kF8E4M3, {m.rows, m.cols / kGroup}, scales);
    add(module + ".weight_scale_2", StoredDtype::kF32, {}, std::vector{factor});
  }

  static Json settings_of(const std::string& format, const std::map<std::string, std::int64_t>& modules) {
    const auto parsed = [](const char* text) { return *Json::parse(text, "settings"); };
    if (format == "fp8") return parsed(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})");
    if (format == "nvfp4")
      return parsed(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})");
    Json groups = Json::object();
    std::map<std::int64_t, Json::Array> targets;  // modules by the number of columns that share a scale
    for (const auto& [module, group] : modules) targets[format == "int4" ? group : 0].emplace_back(module);
    for (auto& [group, names] : targets) {
      Json weights = parsed(R"({"num_bits": 8, "strategy": "channel", "symmetric": true, "type": "int"})");
      Json inputs =
          parsed(R"({"num_bits": 8, "strategy": "token", "symmetric": true, "type": "int", "dynamic": true})");
      if (format == "int4") weights.set("num_bits", 4).set("strategy", "group").set("group_size", group);
      Json of_group = Json::object();
      of_group.set("targets", Json(std::move(names))).set("weights", weights);
      of_group.set("input_activations", format == "int4" ? Json() : inputs);
      groups.set("group_" + std::to_string(group), of_group);
    }
    Json settings = Json::object();
    settings.set("quant_method", "compressed-tensors").set("config_groups", groups);
    settings.set("format", format == "int4" ? "pack-quantized" : "int-quantized");
    return settings;
  }

  Checkpoint checkpoint_;
  std::list<std::vector<std::byte>> owned_;
  std::vector<StoredTensor> tensors_;
  Json config_;
};

}  // namespace tessera::testing
