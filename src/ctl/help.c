/* Help, completion scripts and the manual page: all printed from the table of verbs. */

#include <stdio.h>
#include <string.h>

#include "ctl/ctl.h"
#include "sbx/version.h"

static const char ABOUT[] = "usage: sandboxctl [--json] [--socket PATH | --url URL --token-file "
                            "FILE] NOUN VERB [options]\n";

static const struct {
    const char *name;
    const char *help;
} GLOBAL[] = {
    { "--json", "answer one JSON object, with the API's field names" },
    { "--watch", "repeat a verb that only reads, every 2 s" },
    { "--socket PATH", "the admin socket (else SANDBOXCTL_SOCKET, else the standalone state's)" },
    { "--url URL", "the public API (else SANDBOXCTL_URL, else the standalone state's)" },
    { "--token-file FILE",
      "holds the token (else SANDBOXCTL_TOKEN_FILE, else the standalone state's)" },
    { "--state DIR", "the standalone state (else SANDBOXCTL_STATE, else /var/lib/sandboxd)" },
    { "--help", "help; after a noun and verb, that verb's options" },
    { "--version", "print the version" },
};

static const struct {
    int code;
    const char *help;
} EXITS[] = {
    { CTL_DONE, "done" },
    { CTL_REFUSED, "refused by the server; doctor: something needs mending" },
    { CTL_USAGE, "the command line cannot be used" },
    { CTL_UNREACHABLE, "the server is not reachable" },
};

static void print_option(const struct ctl_option *o)
{
    char left[64];

    (void)snprintf(left, sizeof(left), "%s%s%s", o->name, o->value != NULL ? " " : "",
                   o->value != NULL ? o->value : "");
    (void)printf("  %-28s %s%s%s\n", left, o->help, (o->flags & CTL_REPEAT) ? " (may repeat)" : "",
                 (o->flags & CTL_REQUIRED) && !(o->flags & CTL_PLACE)
                     ? (o->flags & CTL_DEFAULTED) ? " (needed; has a default in a standalone state)"
                                                  : " (needed)"
                     : "");
}

static void print_usage(FILE *to, const struct ctl_verb *v)
{
    (void)fprintf(to, "%s%s%s", v->noun, v->verb != NULL ? " " : "",
                  v->verb != NULL ? v->verb : "");
    for (size_t i = 0; v->options[i].name != NULL; i++) {
        const struct ctl_option *o = &v->options[i];

        if (!(o->flags & CTL_PLACE) || o->type == CTL_ARGV)
            continue;
        (void)fprintf(to, " %s", o->name);
    }
    for (size_t i = 0; v->options[i].name != NULL; i++) {
        const struct ctl_option *o = &v->options[i];

        if ((o->flags & CTL_PLACE) || !(o->flags & CTL_REQUIRED) || (o->flags & CTL_DEFAULTED))
            continue;
        (void)fprintf(to, " %s %s", o->name, o->value != NULL ? o->value : "");
    }
    for (size_t i = 0; v->options[i].name != NULL; i++)
        if (v->options[i].type == CTL_ARGV)
            (void)fprintf(to, " -- argv...");
}

void ctl_help_verb(const struct ctl_verb *v)
{
    (void)fputs("usage: sandboxctl ", stdout);
    print_usage(stdout, v);
    (void)printf("\n\n%s.\n", v->help);
    if (v->options[0].name != NULL)
        (void)puts("");
    for (size_t i = 0; v->options[i].name != NULL; i++)
        print_option(&v->options[i]);
}

void ctl_help(const char *noun)
{
    const struct ctl_verb *v;

    (void)printf("%s\n", ABOUT);
    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
        char left[40];

        if (v->hidden || (noun != NULL && strcmp(noun, v->noun) != 0))
            continue;
        (void)snprintf(left, sizeof(left), "%s %s", v->noun, v->verb != NULL ? v->verb : "");
        (void)printf("  %-24s %s\n", left, v->help);
    }
    (void)puts("");
    for (size_t i = 0; i < COUNT_OF(GLOBAL); i++)
        (void)printf("  %-24s %s\n", GLOBAL[i].name, GLOBAL[i].help);
    (void)puts("\nExit codes (exec passes on the command's own):");
    for (size_t i = 0; i < COUNT_OF(EXITS); i++)
        (void)printf("  %d  %s\n", EXITS[i].code, EXITS[i].help);
}

/* --- completion ------------------------------------------------------------------ */

static void print_option_names(const struct ctl_verb *v)
{
    for (size_t o = 0; v->options[o].name != NULL; o++)
        if (v->options[o].name[0] == '-' && v->options[o].type != CTL_ARGV)
            (void)printf("%s ", v->options[o].name);
}

/* "noun)" or "noun verb)" with what may follow, for both shells. */
static void print_cases(const char *indent, const char *form)
{
    const struct ctl_verb *v;
    const char *noun;

    for (size_t n = 0; (noun = ctl_nouns(n)) != NULL; n++) {
        bool bare = false, hidden = false;

        for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++)
            if (strcmp(v->noun, noun) == 0 && v->verb == NULL)
                bare = true, hidden = v->hidden;
        if (hidden)
            continue;
        if (bare) /* whatever argument stands there */
            (void)printf("%s'%s' | '%s '*) %s='", indent, noun, noun, form);
        else
            (void)printf("%s'%s') %s='", indent, noun, form);
        for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
            if (strcmp(v->noun, noun) != 0 || v->hidden)
                continue;
            if (v->verb != NULL)
                (void)printf("%s ", v->verb);
            else
                print_option_names(v);
        }
        (void)puts("' ;;");
    }
    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
        if (v->verb == NULL || v->hidden)
            continue;
        (void)printf("%s'%s %s') %s='", indent, v->noun, v->verb, form);
        print_option_names(v);
        (void)puts("' ;;");
    }
}

static void print_nouns(void)
{
    const char *noun;
    const struct ctl_verb *v;

    for (size_t n = 0; (noun = ctl_nouns(n)) != NULL; n++)
        for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++)
            if (strcmp(v->noun, noun) == 0) {
                if (!v->hidden)
                    (void)printf("%s ", noun);
                break;
            }
}

static void print_globals(void)
{
    for (size_t i = 0; i < COUNT_OF(GLOBAL); i++)
        (void)printf("%.*s ", (int)strcspn(GLOBAL[i].name, " "), GLOBAL[i].name);
}

/* Words before the cursor: the noun and verb are the first two that are no options. */
static void print_bash(void)
{
    (void)puts(
        "# bash completion for sandboxctl; made by: sandboxctl completion bash\n"
        "_sandboxctl() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} words='' more='' i w skip=''\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        w=${COMP_WORDS[i]}\n"
        "        if [ -n \"$skip\" ]; then skip=''; continue; fi\n"
        "        case $w in\n"
        "        --) return ;;\n"
        "        --socket | --url | --token-file | --state) [ -n \"$words\" ] || skip=1 ;;\n"
        "        -*) ;;\n"
        "        *) case $words in '') words=$w ;; *' '*) ;; *) words=\"$words $w\" ;; esac ;;\n"
        "        esac\n"
        "    done\n"
        "    case $words in");
    (void)fputs("    '') more='", stdout);
    print_nouns();
    (void)puts("' ;;");
    print_cases("    ", "more");
    (void)fputs("    esac\n    case $cur in -*) more=\"$more ", stdout);
    print_globals();
    (void)puts(
        "\" ;; esac\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$more\" -- \"$cur\")\n"
        "    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
        "}\n"
        "complete -F _sandboxctl sandboxctl");
}

static void print_zsh(void)
{
    (void)puts("#compdef sandboxctl\n"
               "# zsh completion for sandboxctl; made by: sandboxctl completion zsh\n"
               "_sandboxctl() {\n"
               "    local w said='' more='' skip=''\n"
               "    for w in ${words[2,CURRENT-1]}; do\n"
               "        if [[ -n $skip ]]; then skip=''; continue; fi\n"
               "        case $w in\n"
               "        --) return ;;\n"
               "        --socket|--url|--token-file|--state) [[ -n $said ]] || skip=1 ;;\n"
               "        -*) ;;\n"
               "        *) case $said in '') said=$w ;; *' '*) ;; *) said=\"$said $w\" ;; esac ;;\n"
               "        esac\n"
               "    done\n"
               "    case $said in");
    (void)fputs("    '') more='", stdout);
    print_nouns();
    (void)puts("' ;;");
    print_cases("    ", "more");
    (void)fputs("    esac\n    [[ ${words[CURRENT]} = -* ]] && more=\"$more ", stdout);
    print_globals();
    (void)puts("\"\n"
               "    compadd -- ${=more} || _files\n"
               "}\n"
               /* loaded by the completion system the file is the function, and is being called now */
               "if [[ ${funcstack[1]} = _sandboxctl ]]; then _sandboxctl; else compdef _sandboxctl sandboxctl; fi");
}

enum ctl_exit ctl_run_completion(struct ctl *c, struct sbx_err *err)
{
    const char *shell = ctl_arg(c, "SHELL");

    if (strcmp(shell, "bash") == 0) {
        print_bash();
    } else if (strcmp(shell, "zsh") == 0) {
        print_zsh();
    } else {
        return ctl_fail(err, CTL_USAGE, "There is completion for bash and for zsh.");
    }
    return CTL_DONE;
}

/* --- the manual page ------------------------------------------------------------------ */

static void put_troff(const char *text)
{
    for (; *text != 0; text++) {
        if (*text == '-')
            (void)fputs("\\-", stdout);
        else if (*text == '\\')
            (void)fputs("\\e", stdout);
        else
            (void)putchar(*text);
    }
}

static void man_option(const char *name, const char *value, const char *help, const char *note)
{
    (void)fputs(".TP\n.B ", stdout);
    put_troff(name);
    if (value != NULL) {
        (void)putchar(' ');
        put_troff(value);
    }
    (void)putchar('\n');
    put_troff(help);
    (void)fputs(note, stdout);
    (void)putchar('\n');
}

static void man_verb(const struct ctl_verb *v)
{
    (void)fputs(".SS ", stdout);
    put_troff(v->noun);
    if (v->verb != NULL) {
        (void)putchar(' ');
        put_troff(v->verb);
    }
    (void)putchar('\n');
    put_troff(v->help);
    (void)fputs(v->side == CTL_ADMIN  ? ".  Admin socket.\n"
                : v->side == CTL_USER ? ".  Public API.\n"
                                      : ".\n",
                stdout);
    for (size_t i = 0; v->options[i].name != NULL; i++)
        man_option(v->options[i].name, v->options[i].value, v->options[i].help,
                   (v->options[i].flags & CTL_REQUIRED) ? " (needed)." : ".");
}

enum ctl_exit ctl_run_man(struct ctl *c, struct sbx_err *err)
{
    const struct ctl_verb *v;

    (void)c;
    (void)err;
    (void)puts(".TH SANDBOXCTL 1 2026-11-29 \"sandboxd " SBX_VERSION "\" \"sandboxd\"\n"
               ".SH NAME\nsandboxctl \\- run sandboxes and the server that has them\n"
               ".SH SYNOPSIS\n.B sandboxctl\n[options] noun verb [options]\n"
               ".SH DESCRIPTION\n"
               "Operators use the admin socket of sandboxd, users its public API with a token.\n"
               "Every verb prints a table for people, or one JSON object with\n.BR \\-\\-json .\n"
               ".SH OPTIONS");
    for (size_t i = 0; i < COUNT_OF(GLOBAL); i++)
        man_option(GLOBAL[i].name, NULL, GLOBAL[i].help, ".");
    (void)puts(".SH COMMANDS");
    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++)
        if (!v->hidden)
            man_verb(v);
    (void)puts(".SH EXIT STATUS");
    for (size_t i = 0; i < COUNT_OF(EXITS); i++)
        (void)printf(".TP\n.B %d\n%s.\n", EXITS[i].code, EXITS[i].help);
    (void)puts(
        ".PP\n.B exec\npasses on the exit code of the command: its own, 128 and the number of the\n"
        "signal that ended it, 127 when there is no such program, 124 when its deadline\n"
        "came. Only then is standard output the command's; what sandboxctl itself has to\n"
        "say is on standard error.\n"
        ".SH ENVIRONMENT\n"
        "SANDBOXCTL_SOCKET, SANDBOXCTL_URL, SANDBOXCTL_TOKEN_FILE and SANDBOXCTL_STATE stand\n"
        "for the options of these names; SANDBOXCTL_ACCOUNT, SANDBOXCTL_APP,\n"
        "SANDBOXCTL_TEMPLATE and SANDBOXCTL_REGION for the verbs' options.\n"
        ".SH FILES\n.TP\n.B /var/lib/sandboxd/client.json\n"
        "what a standalone server made first: its url with the certificate there, token file and ids, used as defaults.");
    return CTL_DONE;
}
