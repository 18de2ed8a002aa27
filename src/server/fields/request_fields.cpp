#include "tessera/server/fields/request_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tessera/base/nearest.h"

namespace tessera {
namespace {

struct FieldRow {
  std::string_view name;
  std::uint32_t objects;  // the objects that have the field
  FieldTreatment treatment;
  std::string_view accepted;  // a JSON list; set with kRefused
  std::string_view remark;
  std::string_view schema;  // a JSON schema of the accepted values
  std::uint32_t required;   // the objects that must have the field
};

using namespace request_object;  // NOLINT(google-build-using-namespace): the rows name its constants
constexpr FieldRow kRows[] = {
#include "request_fields.inc"  // generated from request_fields.json by request_fields.cmake
};

const FieldRow* find_row(std::string_view name, std::uint32_t object) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const FieldRow& r) { return (r.objects & object) != 0 && r.name == name; });
  return row != std::end(kRows) ? row : nullptr;
}

// Compares values. Numbers are equal if their values are, so 1 equals 1.0.
bool same_value(const Json& a, const Json& b) {
  return a == b || (a.is_number() && b.is_number() && a.as_double() == b.as_double());
}

// Returns whether the value means the same as an absent field: null, a value in `accepted`, or a list of such values
// (one for each prompt).
bool asks_for_nothing(const Json& value, const Json::Array& accepted) {
  const auto one_of = [&](const Json& v) {
    return v.is_null() ||
           std::any_of(accepted.begin(), accepted.end(), [&](const Json& a) { return same_value(v, a); });
  };
  return one_of(value) || (value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(), one_of));
}

std::string accepted_values(const Json::Array& accepted, std::string_view remark) {
  std::vector<std::string> shown;
  for (const Json& value : accepted) shown.push_back(value.dump());
  std::string text = shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, " or "));
  if (!remark.empty()) text += fmt::format(" ({})", remark);
  return text;
}

ApiError unknown_field(const ApiFields& fields, const std::string& name, std::uint32_t object) {
  std::vector<std::string_view> candidates;
  for (const FieldRow& row : kRows) {
    if ((row.objects & object) != 0 && row.treatment != FieldTreatment::kRefused) candidates.push_back(row.name);
  }
  std::string hint;
  if (object == kGenerate && find_row(name, kSamplingParams) != nullptr) {
    hint = "it belongs into \"sampling_params\"";
  } else if (const std::vector<std::string> near = nearest_names(name, candidates); !near.empty()) {
    hint = fmt::format("did you mean \"{}\"?", fmt::join(near, "\", \""));
  } else {
    hint = "the server's documents list the accepted fields";
  }
  ApiError error = invalid_field(
      fields.param(clip_text(name)),
      fmt::format("request: field \"{}\" is not known; {} (--allow-unknown-fields makes a server ignore such fields)",
                  fields.param(clip_text(name)), hint));
  error.code = "unknown_parameter";
  return error;
}

}  // namespace

std::vector<AcceptedField> accepted_fields(std::uint32_t objects) {
  std::vector<AcceptedField> fields;
  for (const FieldRow& row : kRows) {
    const bool accepted = row.treatment == FieldTreatment::kServed || row.treatment == FieldTreatment::kHarmless;
    if ((row.objects & objects) == 0 || !accepted) continue;
    fields.push_back({.name = row.name,
                      .treatment = row.treatment,
                      .remark = row.remark,
                      .schema = row.schema,
                      .required = (row.required & objects) == objects});
  }
  return fields;
}

ApiStatus check_request_fields(const ApiFields& fields, std::uint32_t object, bool ignore_unknown) {
  for (const auto& [name, value] : fields.members()) {
    if (value.is_null()) continue;
    const FieldRow* row = find_row(name, object);
    if (row == nullptr) {
      if (!ignore_unknown) return unknown_field(fields, name, object);
      continue;
    }
    if (row->treatment != FieldTreatment::kRefused) continue;
    const Json accepted = TRY(Json::parse(row->accepted, "request_fields.json"));
    if (asks_for_nothing(value, accepted.as_array())) continue;
    return fields.unsupported(name, accepted_values(accepted.as_array(), row->remark));
  }
  return api_ok();
}

}  // namespace tessera
