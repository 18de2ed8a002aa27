#include "tessera/text/tokenizer.h"

#include <gtest/gtest.h>
