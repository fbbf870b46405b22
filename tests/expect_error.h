// EXPECT_ERROR(statement, code, part): the statement throws Error with this code and a message that holds `part`.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/check.h"

#define EXPECT_ERROR(statement, expected_code, part)                                            \
  try {                                                                                         \
    statement;                                                                                  \
    ADD_FAILURE() << #statement << " threw nothing";                                            \
  } catch (const ::shiftron::Error& error) {                                                    \
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(expected_code)) << error.what(); \
    EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part));                         \
  }
