package crossstream.flink;

import org.apache.flink.table.functions.ScalarFunction;

/** How often a character is in a text: the one function of Nexmark that SQL has not. */
public final class CountChar extends ScalarFunction {
    private static final long serialVersionUID = 1L;

    public long eval(String text, String character) {
        return text.chars().filter(c -> c == character.charAt(0)).count();
    }
}
