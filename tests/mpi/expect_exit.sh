#!/bin/sh
# Runs a command; passes when it ends within 30 s, scaled, with the given exit code, or one of several (9,71), and its output contains the given text.
# usage: expect_exit.sh CODE TEXT COMMAND...
code=$1
text=$2
shift 2
limit=$(awk -v scale="${SHIFTRON_TEST_TIME_SCALE:-1}" 'BEGIN { print 30 * scale }')
output=$(timeout -k 5 "$limit" "$@" 2>&1)
found=$?
printf '%s\n' "$output"
case ",$code," in
  *",$found,"*) ;;
  *) echo "exit code $found instead of $code"; exit 1 ;;
esac
case $output in
  *"$text"*) ;;
  *) echo "the output does not contain: $text"; exit 1 ;;
esac
