#include "formats/config.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json Parsed(const std::string& text) {
  Result<Json> json = ParseJson(text, "test");
  EXPECT_TRUE(json.ok()) << text;
  return std::move(json).value();
}

std::string Normal(const std::string& text) {
  const Result<Json> json = NormalizeConfig(Parsed(text), "config.json");
  return json.ok() ? WriteJson(*json) : json.status().message();
}

TEST(NormalizeConfig, LeavesFlatConfigsAlone) {
  for (const char* const text : {R"({"rope_theta":10000.0,"rope_scaling":{"factor":2,"type":"linear"}})", "{}",
                                 R"({"rope_theta":1,"rope_scaling":null,"x":[1,2]})"}) {
    EXPECT_EQ(Normal(text), WriteJson(Parsed(text)));
  }
}

TEST(NormalizeConfig, LiftsDefaultRope) {
  EXPECT_EQ(
      Normal(R"({"rope_parameters":{"rope_theta":500000,"rope_type":"default"}})"),
      R"({"rope_parameters":{"rope_theta":500000,"rope_type":"default"},"rope_theta":500000,"rope_scaling":null})");
  const Json without_type = Parsed(Normal(R"({"rope_parameters":{"rope_theta":5.5}})"));
  EXPECT_EQ(without_type.Find("rope_theta")->as_double(), 5.5);
  EXPECT_TRUE(without_type.Find("rope_scaling")->is_null());
}

TEST(NormalizeConfig, LiftsScaledRope) {
  const Json json = Parsed(Normal(R"({"rope_scaling":null,"rope_parameters":
      {"rope_theta":1e6,"rope_type":"yarn","factor":4.0,"partial_rotary_factor":0.5,"truncate":false}})"));
  EXPECT_EQ(json.Find("rope_theta")->as_double(), 1e6);
  EXPECT_EQ(json.Find("partial_rotary_factor")->as_double(), 0.5);
  EXPECT_EQ(WriteJson(*json.Find("rope_scaling")), R"({"rope_type":"yarn","factor":4.0,"truncate":false})");
}

TEST(NormalizeConfig, FlatKeysWin) {
  const Json json = Parsed(Normal(R"({"rope_theta":1,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":
      {"rope_theta":2,"rope_type":"yarn","factor":4.0}})"));
  EXPECT_EQ(json.Find("rope_theta")->as_int(), 1);
  EXPECT_EQ(json.Find("rope_scaling")->Find("type")->as_string(), "linear");
}

TEST(NormalizeConfig, LeavesParametersPerLayerTypeAlone) {
  const std::string text =
      R"({"rope_parameters":{"full_attention":{"rope_theta":1},"sliding_attention":{"rope_theta":2}}})";
  EXPECT_EQ(Normal(text), text);
}

TEST(NormalizeConfig, LiftsInsideTextConfig) {
  const Json json = Parsed(Normal(R"({"text_config":{"rope_parameters":{"rope_theta":7,"rope_type":"default"}}})"));
  EXPECT_EQ(json.Find("text_config")->Find("rope_theta")->as_int(), 7);
  EXPECT_EQ(json.Find("rope_theta"), nullptr);
}

TEST(NormalizeConfig, RefusesWrongTypes) {
  EXPECT_EQ(Normal("[]"), "config.json: expected an object, found array");
  EXPECT_EQ(Normal(R"({"rope_parameters":5})"), "config.json: rope_parameters: expected an object, found integer");
  EXPECT_EQ(Normal(R"({"rope_parameters":{"rope_theta":"1"}})"),
            "config.json: rope_parameters.rope_theta: expected a number, found string");
  EXPECT_EQ(Normal(R"({"rope_parameters":{"rope_type":1}})"),
            "config.json: rope_parameters.rope_type: expected a string, found integer");
}

Result<std::vector<int32_t>> Eos(const std::string& config, const std::string& generation = "") {
  const Json config_json = Parsed(config);
  const Json generation_json = generation.empty() ? Json() : Parsed(generation);
  return EosIds(config_json, "config.json", generation.empty() ? nullptr : &generation_json, "generation_config.json");
}

TEST(EosIds, GenerationConfigReplacesConfig) {
  EXPECT_THAT(*Eos(R"({"eos_token_id":2})"), ElementsAre(2));
  EXPECT_THAT(*Eos(R"({"eos_token_id":[2,106,2]})"), ElementsAre(2, 106));
  EXPECT_THAT(*Eos(R"({"eos_token_id":2})", R"({"eos_token_id":[7,9]})"), ElementsAre(7, 9));
  EXPECT_THAT(*Eos(R"({"eos_token_id":2})", R"({"eos_token_id":7})"), ElementsAre(7));
}

TEST(EosIds, UnsetValuesFallBack) {
  for (const char* const generation :
       {"{}", R"({"eos_token_id":null})", R"({"eos_token_id":[]})", R"({"eos_token_id":0})"}) {
    EXPECT_THAT(*Eos(R"({"eos_token_id":2})", generation), ElementsAre(2)) << generation;
  }
  EXPECT_THAT(*Eos(R"({"eos_token_id":2})", R"({"eos_token_id":[0]})"), ElementsAre(0));
  EXPECT_THAT(*Eos(R"({"eos_token_id":0})"), ElementsAre(0));
  EXPECT_THAT(*Eos("{}"), IsEmpty());
  EXPECT_THAT(*Eos(R"({"eos_token_id":null,"text_config":{"eos_token_id":[1,106]}})"), ElementsAre(1, 106));
}

TEST(EosIds, RefusesWhatIsNoId) {
  for (const char* const value : {"-1", "2147483648", "\"2\"", "1.5", "{}", "[1,\"2\"]", "[[1]]", "true"}) {
    const std::string text = std::string(R"({"eos_token_id":)") + value + "}";
    const Status status = Eos(text).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << value;
    EXPECT_THAT(status.message(), HasSubstr("config.json: eos_token_id: expected token ids")) << value;
    EXPECT_THAT(Eos("{}", text).status().message(), HasSubstr("generation_config.json: eos_token_id")) << value;
  }
}

}  // namespace
}  // namespace nunspark
