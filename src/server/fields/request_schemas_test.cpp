// Catches: a type or a range at /openapi.json that differs from what the server accepts, so that a generated client
// sends refused values or cannot send accepted ones; and an optional field that is described as required.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/server/fields/request_fields_test_util.h"

namespace tessera::test {
namespace {

class RequestSchemas : public FieldsTest {};

// Returns whether a schema of request_fields.json accepts a value. These schemas use only the keywords that this
// function handles.
bool accepts(const Json& schema, const Json& value) {
  for (const auto& [keyword, operand] : schema.as_object()) {
    if (keyword == "enum") {
      const Json::Array& values = operand.as_array();
      if (std::ranges::find(values, value) == values.end()) return false;
    } else if (keyword == "type") {
      const Json::Array types = operand.is_array() ? operand.as_array() : Json::Array{operand};
      const auto is = [&](const Json& type) {
        return type == Json(value.type_name()) || (type == Json("number") && value.is_number());
      };
      if (std::ranges::none_of(types, is)) return false;
    } else if (keyword == "items") {
      if (value.is_array() &&
          !std::ranges::all_of(value.as_array(), [&](const Json& v) { return accepts(operand, v); }))
        return false;
    } else if (value.is_number()) {
      const double number = value.as_double();
      const double limit = operand.as_double();
      if (keyword == "minimum" && number < limit) return false;
      if (keyword == "exclusiveMinimum" && number <= limit) return false;
      if (keyword == "maximum" && number > limit) return false;
    }
  }
  return true;
}

// Returns values of every type, and values at and beyond the schema's limits.
Json::Array probes_of(const Json& schema) {
  Json::Array probes = {Json::object({{"zz", 1}}), "zz", "", 1, -1, 0, 0.5, true, Json::array(), Json::Array{1},
                        Json::Array{"a"}};
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum"}) {
    const Json* limit = schema.find(keyword);
    if (limit == nullptr) continue;
    probes.push_back(*limit);
    if (limit->is_int()) probes.push_back(limit->as_int() + (keyword == std::string("maximum") ? 1 : -1));
  }
  return probes;
}

TEST_F(RequestSchemas, ASchemaRefusesOnlyWhatTheReaderRefuses) {
  for_each({"served", "harmless"}, [&](const Json& row, const std::string& object) {
    const Json* schema = row.find("schema");
    if (schema == nullptr) return;
    if (row.find("fails") == nullptr) {
      EXPECT_TRUE(accepts(*schema, *row.find("try")));
    }
    for (const Json& probe : probes_of(*schema)) {
      if (accepts(*schema, probe)) continue;
      const Outcome refused = send(object, request_of(row, object, &probe), model_);
      EXPECT_TRUE(refused.error.has_value()) << probe.dump() << " is accepted, but not by " << schema->dump();
    }
  });
}

TEST_F(RequestSchemas, SchemaLimitsMatchTheReader) {
  int limits = 0;
  for_each({"served", "harmless"}, [&](const Json& row, const std::string& object) {
    const Json* schema = row.find("schema");
    if (schema == nullptr) return;
    for (const char* keyword : {"minimum", "maximum"}) {
      const Json* limit = schema->find(keyword);
      if (limit == nullptr) continue;
      ++limits;
      const Outcome at = send(object, request_of(row, object, limit), model_);
      const bool is_range = at.error && at.error->param == param_of(row, object) &&
                            (at.error->message.find("accepted: an integer in [") != std::string::npos ||
                             at.error->message.find("accepted: a number in [") != std::string::npos);
      EXPECT_FALSE(is_range) << at.error->message;
    }
  });
  EXPECT_GT(limits, 100);
}

TEST_F(RequestSchemas, ARequestWithoutARequiredFieldIsRefused) {
  model_.served.requires_name = true;
  for_each({"served"}, [&](const Json& row, const std::string& object) {
    const Json* required = row.find("required_by");
    const std::string padded = required == nullptr ? "" : " " + required->as_string() + " ";
    if (padded.find(" " + object + " ") == std::string::npos) return;
    const std::string& name = row.find("name")->as_string();
    const Json whole = *Json::parse(place_of(object).request, "request");
    Outcome without_it;
    if (object == "embeddings") {
      ServedModel model = model_.without_tokens(/*embeds=*/true);
      model.requires_name = true;
      without_it = outcome(prepare_embeddings(model, without(whole, name).dump()));
    } else {
      without_it = send(object, without(whole, name).dump(), model_);
    }
    ASSERT_TRUE(without_it.error.has_value());
    EXPECT_EQ(without_it.error->http_status, 400) << without_it.error->message;
  });
}

}  // namespace
}  // namespace tessera::test
