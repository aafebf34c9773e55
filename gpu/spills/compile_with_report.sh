#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a compiler's command line. What ptxas says of each kernel's registers and spills is kept beside the object,
# in OBJECT.ptxas, for tests/gpu/registry/spilled_bytes_test.cpp; everything else goes on to stderr. Fails where ptxas says
# that it makes wgmma products wait for each other (its messages C75xx), which it calls mere information; a build that watches
# its barriers calls functions, and does.
object=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done
if [ -z "$object" ]; then exec "$@"; fi
"$@" 2>"$object.stderr"
code=$?
kernel_lines='^ptxas info|bytes stack frame, .* bytes spill'
grep -E "$kernel_lines" "$object.stderr" >"$object.ptxas"
grep -vE "$kernel_lines" "$object.stderr" >&2
serialized='\(C75[0-9]+\)'
case " $* " in *" -DTILESCOPE_WATCH_BARRIERS "*) serialized='^$' ;; esac
if grep -E "$serialized" "$object.stderr" >&2; then
  echo "ptxas serialises the products of $object" >&2
  rm -f "$object"
  code=1
fi
rm -f "$object.stderr"
exit $code
