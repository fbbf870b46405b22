# Completion of bash for shiftron: commands, options, keys and their choices, otherwise file names. Made by cmake/pages.py.
_shiftron() {
  local current=${COMP_WORDS[COMP_CWORD]} previous='' command='' at=1 word words=''
  # A word like --train.steps=1 is three words here, if = is among COMP_WORDBREAKS.
  ((COMP_CWORD > 0)) && previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == = ]]; then current='' ; elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  [[ ${COMP_WORDS[1]-} == help ]] && at=2
  while ((at < COMP_CWORD)); do  # the command's words
    word=${COMP_WORDS[at]}
    if [[ $word == -* || -z $(_shiftron_words "$command" "$word") ]]; then break; fi
    command+=${command:+ }$word
    at=$((at + 1))
  done
  COMPREPLY=()
  case "$command $previous" in
@VALUES@
  esac
  if [[ -z $words && $previous == --* && ! $previous =~ ^(@FLAGS@)$ ]]; then  # the value of an option
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    compopt -o filenames 2> /dev/null
    return
  fi
  if [[ -z $words ]]; then
    if [[ $current == -* ]]; then words=$(_shiftron_options "$command"); else words=$(_shiftron_words "$command"); fi
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if ((${#COMPREPLY[@]} == 0)) && [[ -n $command ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    compopt -o filenames 2> /dev/null
  fi
}
# The words that may follow those of a command; with a second argument: that word, if it is one of them.
_shiftron_words() {
  local words='' word
  case $1 in
@FOLLOWING@
  esac
  for word in $words; do [[ -n ${2-} && $word != "$2" ]] || printf '%s\n' "$word"; done
}
_shiftron_options() {
  local words='--help --version'
  case $1 in
@OPTIONS@
  esac
  printf '%s\n' "${words/KEYS/@KEYS@}"
}
complete -F _shiftron shiftron
