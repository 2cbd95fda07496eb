#include "agent/agent.h"

int main(void)
{
    return agent_main();
}
